"""The API object: routers, who may call, and how each fault is said."""

from __future__ import annotations

import logging

from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse
from ninja.errors import AuthenticationError, HttpError, ValidationError

from webui.accounts.limits import TooMany
from webui.api import account, artifacts, benches, differences, events, experiments, hooks, results, runs, topologies
from webui.api.authentication import Session, Token
from webui.api.description import ABOUT, ConsoleApi
from webui.api.errors import ApiError, away, error_response, plain_error
from webui.api.parameters import only_known
from webui.benches.refusals import Refusal
from webui.outages import is_outage

logger = logging.getLogger(__name__)

QUOTA_RETRY_S = "30"
"""What a quota that is full tells a client to wait: a run of the caller's has to start or end first."""

api = ConsoleApi(
    title="Looplane",
    version="1",
    description=ABOUT,
    shapes=differences.COMPONENTS,
    urls_namespace="api",
    auth=[Token(), Session()],
    docs_url=None,  # a page of our own: webui.api.views, docs/decisions/0017
    openapi_url="/openapi.json",
)
api.add_decorator(only_known, mode="view")
for module in (runs, events, results, artifacts, differences, experiments, topologies, benches, hooks, account):
    api.add_router("", module.router)


@api.exception_handler(ApiError)
def _refused(_request: HttpRequest, fault: ApiError) -> HttpResponse:
    return error_response(fault.status, fault.code, fault.message, path=fault.path)


@api.exception_handler(TooMany)
def _too_many(_request: HttpRequest, fault: TooMany) -> HttpResponse:
    response = error_response(429, "too_many_requests", str(fault))
    response.headers["Retry-After"] = str(fault.wait_s)
    return response


@api.exception_handler(Refusal)
def _not_given(_request: HttpRequest, fault: Refusal) -> HttpResponse:
    response = error_response(fault.status, fault.code, str(fault), path=fault.path or None)
    if fault.status == 429:
        response.headers["Retry-After"] = QUOTA_RETRY_S
    return response


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
    if fault.status_code == 403:  # ninja's own, of a session alone
        return error_response(403, "forbidden", "A session needs its X-CSRFToken header for this; scripts use a token.")
    return plain_error(fault.status_code)


@api.exception_handler(Exception)
def _broken(request: HttpRequest, fault: Exception) -> HttpResponse:
    if is_outage(fault):
        return away(request)
    logger.error("%s %s failed", request.method, request.path, exc_info=fault)
    return plain_error(500)
