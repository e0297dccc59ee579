"""The API's manual as a page, made from its OpenAPI description: what to show of each call, and a curl line for it.

Pure: knows the document, no request. Why the page is our own and no viewer is vendored: docs/decisions/0017.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any, NamedTuple

METHODS = ("get", "post", "patch", "delete")
"""In the order in which they are shown; HEAD stands with its GET."""
_COMMON = frozenset({"400", "401", "403", "413", "422", "429", "500", "503"})
"""Statuses that the page explains once for all calls."""


class Piece(NamedTuple):
    """A stretch of prose; `code` where the description has it between backticks."""

    text: str
    code: bool


Prose = tuple[Piece, ...]


def prose(text: str) -> Prose:
    """A description's words, without its line breaks."""
    parts = " ".join(text.split()).split("`")
    return tuple(Piece(part, number % 2 == 1) for number, part in enumerate(parts) if part)


@dataclass(frozen=True)
class Field:
    """A parameter, or a field of a body."""

    name: str
    kind: str
    place: str
    """path, query, header, body."""
    required: bool
    about: Prose


@dataclass(frozen=True)
class Answer:
    """A status that is this call's own."""

    status: str
    about: Prose
    kinds: str
    shape: str
    """Name of its schema among those below; empty where it has none."""


@dataclass(frozen=True)
class Call:
    """One operation."""

    anchor: str
    method: str
    path: str
    summary: str
    about: list[Prose]
    """Paragraphs."""
    fields: list[Field]
    answers: list[Answer]
    curl: str


@dataclass(frozen=True)
class Section:
    """The calls about one thing."""

    name: str
    about: str
    calls: list[Call]


@dataclass(frozen=True)
class Shape:
    """An object that goes in or out."""

    name: str
    about: Prose
    fields: list[Field]


def sections(document: dict[str, Any], address: str) -> list[Section]:
    """The calls by tag; `address` is where the console answers, as curl lines have it."""
    found = []
    for tag in document["tags"]:
        calls = [
            _call(document, path, method, told, address)
            for path, methods in document["paths"].items()
            for method in METHODS
            if (told := methods.get(method)) and tag["name"] in told.get("tags", [])
        ]
        if calls:
            found.append(Section(tag["name"], tag["description"], calls))
    return found


def shapes(document: dict[str, Any]) -> list[Shape]:
    """Every object of the description, by name."""
    found = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        if schema.get("properties"):
            found.append(Shape(name, prose(schema.get("description", "")), _properties(schema, "")))
    return found


def _call(document: dict[str, Any], path: str, method: str, told: dict[str, Any], address: str) -> Call:
    fields = [
        Field(one["name"], kind_of(one["schema"]), one["in"], bool(one["required"]), prose(one.get("description", "")))
        for one in told.get("parameters", [])
    ]
    body = _body(document, told)
    if body is not None:
        fields += _properties(body, "body")
    answers = [
        Answer(status, prose(answer.get("description", "")), ", ".join(answer.get("content", {})), _shape_of(answer))
        for status, answer in told["responses"].items()
        if status not in _COMMON
    ]
    about = [prose(part) for part in str(told.get("description", "")).split("\n\n") if part.strip()]
    return Call(
        anchor=str(told["operationId"]),
        method=method.upper(),
        path=path,
        summary=str(told.get("summary", "")),
        about=about,
        fields=fields,
        answers=answers,
        curl=curl(path, method, told, body, address),
    )


def _body(document: dict[str, Any], told: dict[str, Any]) -> dict[str, Any] | None:
    content = told.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    schema: dict[str, Any] = content["schema"]
    name = _referred(schema)
    if name:
        schema = document["components"]["schemas"][name]
    return schema


def _properties(schema: dict[str, Any], place: str) -> list[Field]:
    required = schema.get("required", [])
    return [
        Field(name, kind_of(one), place, name in required, prose(one.get("description", "")))
        for name, one in schema["properties"].items()
    ]


def _shape_of(answer: dict[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        schema = content.get("schema", {})
        name = _referred(schema) or _referred(schema.get("items", {}))
        if name and name != "ErrorOut":
            return name
    return ""


def _referred(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def kind_of(schema: dict[str, Any]) -> str:
    """A schema in a few words: `integer 1 to 100, 25 unless given`."""
    if _referred(schema):
        return _referred(schema)
    if "anyOf" in schema:
        kinds = list(dict.fromkeys(kind_of(one) for one in schema["anyOf"]))
        return " or ".join(kinds)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        words = "one of " + ", ".join(str(value) or "nothing" for value in values)
    elif schema.get("type") == "array":
        words = f"list of {kind_of(schema.get('items', {}))}"
    elif schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        words = f"object of {kind_of(schema['additionalProperties'])}"
    else:
        words = {"date-time": "moment (RFC 3339)"}.get(str(schema.get("format")), str(schema.get("type", "anything")))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        words += f" {low:,} to {high:,}" if high < 2**53 else f" from {low:,} on"
    if "maxLength" in schema:
        words += f", at most {schema['maxLength']:,} characters"
    if schema.get("default") not in (None, "", [], {}):
        words += f", {schema['default']} unless given"
    return words


_EXAMPLES = {"run_id": "RUN", "a": "RUN", "b": "OTHER_RUN", "name": "NAME", "form": "junit"}


def curl(path: str, method: str, told: dict[str, Any], body: dict[str, Any] | None, address: str) -> str:
    """The call as a line for a shell; `$TOKEN` is the caller's token."""
    filled = re.sub(r"{([^}]+)}", lambda found: _EXAMPLES.get(found[1], found[1].upper()), path)
    words = ["curl"]
    if method not in ("get", "post") or (method == "post" and body is None):
        words += ["-X", method.upper()]
    if told.get("security"):
        words.append('-H "Authorization: Bearer $TOKEN"')
    line = " ".join(words)
    if body is not None:
        line += f" \\\n  --json {shlex.quote(json.dumps(example_of(body)))}"
    return f"{line} \\\n  {address}{filled}"


def example_of(schema: dict[str, Any]) -> dict[str, Any]:
    """A body with what is required, or else the first field that has an example."""
    fields = schema["properties"]
    wanted = list(schema.get("required", [])) or next(([name] for name in fields if _examples(fields[name])), [])
    return {name: _example(fields[name]) for name in wanted or list(fields)[:1]}


def _examples(schema: dict[str, Any]) -> list[Any]:
    return list(schema.get("examples", []))


def _example(schema: dict[str, Any]) -> Any:
    if _examples(schema):
        return _examples(schema)[0]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0])
    return {"integer": 30, "number": 1.0, "boolean": True, "array": [], "object": {}}.get(str(schema.get("type")), "…")
