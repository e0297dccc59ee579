"""One error shape: `{"error": {"code", "message", "path"?}}` for every refusal of the API, whoever refuses.

Pages get a page of their own for the same faults; a middleware turns what Django or the router answers under /api/
into the shape, so that no client ever has to parse HTML.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from webui.outages import RETRY_AFTER_S, WORDS, is_outage

logger = logging.getLogger(__name__)

PREFIX = "/api/"
_PASSED_ON = ("Allow", "Retry-After", "WWW-Authenticate")

_WORDS = {
    400: ("bad_request", "The request could not be read."),
    401: ("not_authenticated", "Send `Authorization: Bearer <token>`, or log in. Tokens are made on the account page."),
    403: ("forbidden", "You may not do this."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take this method."),
    413: ("too_large", "The request is too large."),
    500: ("internal", "Something broke in the console; its log has the traceback."),
    503: ("unavailable", WORDS),
}

MEANINGS = {
    400: "The request could not be read: bad JSON, bytes that are no text, a bad host.",
    401: "No token, an unknown one, or one that has expired or was revoked.",
    403: "Known, but not allowed; the message says which right is missing.",
    404: "Not there, or not the caller's to read.",
    409: "Not possible as things stand; the message says why.",
    413: "The body is longer than 1 MB.",
    422: "A field, parameter or experiment is wrong; `path` names the place.",
    429: "Too much at once or too often; try again after `Retry-After` seconds.",
    500: "A fault of ours; the console's log has the traceback.",
    503: "A part of the console is away for a moment; try again after `Retry-After` seconds.",
}
"""What a status of a refusal says, whatever the call."""


class ApiError(Exception):
    """A refusal by the API itself."""

    def __init__(self, status: int, code: str, message: str, *, path: str | None = None) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.path = path
        super().__init__(message)


def error_response(status: int, code: str, message: str, *, path: str | None = None) -> JsonResponse:
    """An answer in the shape."""
    error = {"code": code, "message": message}
    if path is not None:
        error["path"] = path
    return JsonResponse({"error": error}, status=status)


def plain_error(status: int) -> JsonResponse:
    """The answer for a status that needs no more words."""
    code, message = _WORDS.get(status, (HTTPStatus(status).name.lower(), HTTPStatus(status).description))
    return error_response(status, code, message)


def _is_in_shape(response: HttpResponse) -> bool:
    if not response.headers.get("Content-Type", "").startswith("application/json"):
        return False
    try:
        return isinstance(json.loads(response.content)["error"]["code"], str)
    except (ValueError, KeyError, TypeError):
        return False


class ApiErrorShape:
    """Rewrites what is not yet in the shape under /api/."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answers the request."""
        response = self.get_response(request)
        if not request.path.startswith(PREFIX) or response.status_code < 400:
            return response
        if not isinstance(response, HttpResponse) or _is_in_shape(response):
            return response
        shaped = plain_error(response.status_code)
        for name in _PASSED_ON:
            if name in response.headers:
                shaped.headers[name] = response.headers[name]
        return shaped


_NOT_YOURS = "It is for another role, or for its owner alone. An admin can change your role on the page People."


def _answer(request: HttpRequest, status: int, title: str, advice: str) -> HttpResponse:
    if request.path.startswith(PREFIX):
        return plain_error(status)
    return render(request, "error.html", {"status": status, "title": title, "advice": advice}, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 400."""
    return _answer(request, 400, "The request could not be read", "Go back and try again from the page itself.")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 403."""
    return _answer(request, 403, "You may not do this", str(exception) or _NOT_YOURS)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form without its token: an old page, mostly."""
    logger.info("CSRF check failed: %s", reason)
    return _answer(request, 403, "This page was too old", "Reload the page and send the form again.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 404."""
    return _answer(request, 404, "There is nothing here", "It may have been removed. Look it up in the list of runs.")


def away(request: HttpRequest) -> HttpResponse:
    """503 with what to wait: the database does not answer. Touches no database, so no context processor runs."""
    if request.path.startswith(PREFIX):
        response: HttpResponse = plain_error(503)
    else:
        words = {"status": 503, "title": "The database does not answer", "advice": WORDS}
        response = HttpResponse(render_to_string("error.html", words), status=503)
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's 500, called while the exception is being handled; 503 where waiting helps."""
    if is_outage(sys.exc_info()[1]):
        return away(request)
    return _answer(
        request, 500, "Something broke in the console", "Runs in flight go on. The traceback is in log/web.log."
    )
