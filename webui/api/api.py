"""The API object: routers, who may call, and how each fault is said."""

from __future__ import annotations

import logging

from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from webui.api import experiments, runs
from webui.api.authentication import Session, Token
from webui.api.errors import ApiError, away, error_response, plain_error
from webui.outages import is_outage

logger = logging.getLogger(__name__)

api = NinjaAPI(
    title="Looplane",
    version="1",
    description="Start, follow and end runs. Every refusal has the shape `{error: {code, message, path?}}`.",
    urls_namespace="api",
    auth=[Token(), Session()],
    docs_url=None,  # ninja's documentation page loads scripts from elsewhere; docs/guide/console.md shows the calls
    openapi_url="/openapi.json",
)
api.add_router("", runs.router)
api.add_router("", experiments.router)


@api.exception_handler(ApiError)
def _refused(_request: HttpRequest, fault: ApiError) -> HttpResponse:
    return error_response(fault.status, fault.code, fault.message, path=fault.path)


@api.exception_handler(ValidationError)
def _invalid(_request: HttpRequest, fault: ValidationError) -> HttpResponse:
    first = fault.errors[0]
    # ninja's places start with where the value was ("body", "query") and the argument's name.
    place = [str(part) for part in first.get("loc", ())]
    if place[:1] == ["body"]:
        place = place[2:]
    elif place:
        place = place[1:]
    others = len(fault.errors) - 1
    more = f" ({others} more fault{'s' if others > 1 else ''})" if others else ""
    return error_response(422, "invalid", f"{first.get('msg', 'invalid')}{more}", path=".".join(place) or "body")


@api.exception_handler(AuthenticationError)
def _stranger(_request: HttpRequest, _fault: AuthenticationError) -> HttpResponse:
    response = plain_error(401)
    response.headers["WWW-Authenticate"] = 'Bearer realm="looplane"'
    return response


@api.exception_handler(RequestDataTooBig)
def _too_large(_request: HttpRequest, _fault: RequestDataTooBig) -> HttpResponse:
    return plain_error(413)


@api.exception_handler(Http404)
def _missing(_request: HttpRequest, _fault: Http404) -> HttpResponse:
    return plain_error(404)


@api.exception_handler(HttpError)
def _http(_request: HttpRequest, fault: HttpError) -> HttpResponse:
    if fault.status_code == 400:
        return error_response(400, "bad_request", f"The request could not be read: {fault.message}")
    return plain_error(fault.status_code)


@api.exception_handler(Exception)
def _broken(request: HttpRequest, fault: Exception) -> HttpResponse:
    if is_outage(fault):
        return away(request)
    logger.error("%s %s failed", request.method, request.path, exc_info=fault)
    return plain_error(500)
