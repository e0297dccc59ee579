"""What can go wrong with a call to the API, as the status and body that OpenAI's clients know.

The body is `{"error": {"message", "type", "param", "code"}}` (design serving.md §4.2); openai-python makes its
exception classes from the status and retries 408, 409, 429 and 5xx unless told not to.

It may not know HTTP libraries: it is status, headers and bytes.
"""

from __future__ import annotations

import msgspec

from emulators import ascii_json
from testbed.serving.requests import Refused


class ApiError(Exception):
    """An answer other than success. `status` is HTTP's; `retry_after` are seconds, for answers worth trying again."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.retry_after = retry_after

    @property
    def body(self) -> bytes:
        """The error body, ASCII JSON on a single line."""
        facts = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return ascii_json.encode({"error": facts})

    @property
    def headers(self) -> dict[str, str]:
        """Headers beyond the usual ones."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request itself is wrong; sending it again does not help."""
    return ApiError(400, message, kind="invalid_request_error", code=code, param=param)


def unauthorised() -> ApiError:
    """401: no key, or not the right one. The key that was sent is not repeated."""
    return ApiError(401, "Incorrect API key provided.", kind="invalid_request_error", code="invalid_api_key")


def no_such_model(asked: str, served: str) -> ApiError:
    """404: another model than the one that is served."""
    message = f"The model {asked!r} does not exist; this server has {served!r}."
    return ApiError(404, message, kind="invalid_request_error", code="model_not_found", param="model")


def not_ready() -> ApiError:
    """503: the model is not loaded yet."""
    return ApiError(
        503, "The model is being loaded.", kind="service_unavailable_error", code="not_ready", retry_after=1
    )


def of_status(status: int, message: str) -> ApiError:
    """What the HTTP library refused by itself: unknown path, wrong method, body too large."""
    return ApiError(status, message, kind="invalid_request_error" if status < 500 else "server_error")


def internal() -> ApiError:
    """500: our fault; details are in the node's log, not in the answer."""
    return ApiError(500, "The server failed on this request.", kind="server_error", code="internal")


class _Answer(msgspec.Struct, frozen=True):
    status: int
    kind: str
    code: str
    retry_after: int | None = None


_REFUSALS: dict[str, _Answer] = {
    "ring_full": _Answer(429, "rate_limit_error", "rate_limit_exceeded", retry_after=1),
    "context_length_exceeded": _Answer(400, "invalid_request_error", "context_length_exceeded"),
    "invalid_request": _Answer(400, "invalid_request_error", "invalid_request"),
    "unavailable": _Answer(503, "service_unavailable_error", "unavailable", retry_after=1),
    "cancelled": _Answer(503, "service_unavailable_error", "cancelled"),
    "internal": _Answer(500, "server_error", "internal"),
}
"""Every reason of `testbed.serving.requests.Refused` and its answer."""


def of_refusal(refused: Refused, param: str) -> ApiError:
    """The answer to a request that the server would not take, or broke off. `param` names the prompt's field."""
    answer = _REFUSALS.get(refused.reason, _REFUSALS["internal"])
    return ApiError(
        answer.status,
        refused.detail or refused.reason,
        kind=answer.kind,
        code=answer.code,
        param=param if answer.status == 400 else None,
        retry_after=answer.retry_after,
    )
