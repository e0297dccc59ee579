"""The API's description of itself, OpenAPI 3.1: what ninja cannot know is added here, once for all operations.

Every refusal is in the one shape and every operation lists those that it may meet; GET and HEAD have ids of their
own; headers that answers carry are named. `looplane openapi` prints it, `/api/v1/openapi.json` serves it.
"""

from __future__ import annotations

import copy
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from webui.api.errors import MEANINGS

ABOUT = """\
Start, follow, compare and end runs of a Looplane console. docs/guide/api.md has the calls by task.

* Every refusal has the shape `{"error": {"code", "message", "path"?}}`; `code` is stable, `message` is for people.
* What a caller may not read answers as if it were not there (404).
* 429 and 503 pass: come back after the seconds in `Retry-After`. Everything that makes something takes an
  `Idempotency-Key`, so that it can be sent again without harm.
* Fields and query parameters that are not described are refused or ignored as described; answers may gain fields."""

TAGS = [
    {"name": "runs", "description": "Make runs, follow them, end them."},
    {"name": "results", "description": "Verdict, files, exports and differences of runs."},
    {"name": "experiments", "description": "What is shipped, and whether an experiment of one's own is sound."},
    {"name": "benches", "description": "Machines that carry runs out, and leases of them."},
    {"name": "webhooks", "description": "Signed messages about one's runs."},
    {"name": "account", "description": "Who calls, tokens, and whether the console is well."},
]

_SECURITY = {
    "Token": "A token of the account page, `Authorization: Bearer lp_…`. Its scopes narrow what its owner may do.",
    "Session": "The console's own session, for its pages. Unsafe methods need the `X-CSRFToken` header beside it.",
}
_ALWAYS = (400, 422, 429, 500, 503)
_RETRY = {"Retry-After": {"description": "Whole seconds.", "schema": {"type": "string"}}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "How to get in.", "schema": {"type": "string"}}},
    429: _RETRY,
    503: _RETRY,
}


REFERENCE = "#/components/schemas/{name}"


def answers(status: int, **said: Any) -> dict[str, Any]:
    """`openapi_extra` for one answer: `description=`, `headers={name: words}`, `content={type: schema}`.

    `links={operation: {parameter: expression}}` says which calls go on from the answer.
    """
    told: dict[str, Any] = {}
    if "description" in said:
        told["description"] = said["description"]
    if "headers" in said:
        told["headers"] = {
            name: {"description": words, "schema": {"type": "string"}} for name, words in said["headers"].items()
        }
    if "content" in said:
        told["content"] = {kind: {"schema": schema} for kind, schema in said["content"].items()}
    if "links" in said:
        told["links"] = {name: {"operationId": name, "parameters": given} for name, given in said["links"].items()}
    return {"responses": {status: told}}


def many(*extras: dict[str, Any]) -> dict[str, Any]:
    """Several `openapi_extra` as one."""
    merged: dict[str, Any] = {}
    for extra in extras:
        for key, value in extra.items():
            if isinstance(value, dict):
                merged.setdefault(key, {}).update(value)
            else:
                merged.setdefault(key, []).extend(value)
    return merged


class ConsoleApi(NinjaAPI):
    """Ninja's API with a complete description. `shapes` are schemas that are not pydantic's."""

    def __init__(self, *, shapes: dict[str, Any], **rest: Any) -> None:
        super().__init__(**rest)
        self._shapes = shapes
        self._document: OpenAPISchema | None = None

    def get_openapi_schema(self, *, path_prefix: str | None = None, path_params: Any = None) -> OpenAPISchema:
        """The description as ninja makes it, finished. Made once: nothing in it changes while the process lives."""
        if self._document is not None:
            return self._document
        document = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        document["paths"] = {
            path: {method: _finished(method, copy.deepcopy(told)) for method, told in methods.items()}
            for path, methods in sorted(document["paths"].items())
        }
        for name, scheme in document["components"].get("securitySchemes", {}).items():
            scheme["description"] = _SECURITY[name]
        document["components"]["schemas"] |= self._shapes
        document["servers"] = [{"url": "/", "description": "The console that serves this description."}]
        document["tags"] = TAGS
        self._document = document
        return document

    def get_openapi_operation_id(self, operation: Any) -> str:
        """The function's name: short, and the same wherever its module moves."""
        return str(operation.view_func.__name__)


def _finished(method: str, told: dict[str, Any]) -> dict[str, Any]:
    responses = told["responses"]
    wanted = {*_ALWAYS, *((401, 403) if told.get("security") else ())}
    if "requestBody" in told:
        wanted.add(413)
    for status in sorted(wanted | {status for status in responses if status >= 400}):
        answer = responses.setdefault(status, {})
        if status in MEANINGS:
            answer["description"] = MEANINGS[status]
        answer.setdefault("content", {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}})
        if status in _HEADERS:
            answer["headers"] = _HEADERS[status]
    if method == "head":
        told["operationId"] += "_head"
        told["summary"] += ", headers only"
        for answer in responses.values():
            answer.pop("content", None)
    told["responses"] = {str(status): responses[status] for status in sorted(responses)}
    return told
