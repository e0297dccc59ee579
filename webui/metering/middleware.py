"""Counts every answer by its route, which is a pattern of ours: an address that nobody has stays `unknown`."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

from webui.metering.counting import here
from webui.metering.series import REQUEST_SECONDS, REQUESTS

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMeter:
    """Stands outside of everything that may answer, so that refusals count too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answers the request."""
        begun = time.monotonic()
        response = self.get_response(request)
        match = request.resolver_match
        if request.path.startswith("/static/"):
            route = "/static/"
        else:
            route = f"/{match.route}" if match is not None else "unknown"
        method = request.method if request.method in METHODS else "other"
        here.count(REQUESTS, str(method), route, str(response.status_code))
        here.observe(REQUEST_SECONDS, time.monotonic() - begun, route)
        here.flush_if_due()
        return response
