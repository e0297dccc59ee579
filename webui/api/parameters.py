"""Query parameters that an operation does not have are refused: a filter that is misspelt must not widen a list."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest

from webui.api.errors import error_response

Run = Callable[..., Any]


def only_known(run: Run) -> Run:
    """Wraps an operation's bound `run`."""
    operation: Any = run.__self__  # type: ignore[attr-defined]
    known = {
        name
        for model in operation.models
        if model.__ninja_param_source__ == "query"
        for name in model.__ninja_flatten_map__
    }

    def refusal(request: HttpRequest) -> Any:
        for name in request.GET:
            if name not in known:
                may = f"this call has {', '.join(sorted(known))}" if known else "this call has none"
                return error_response(422, "unknown_parameter", f"No such query parameter; {may}.", path=name[:80])
        return None

    if inspect.iscoroutinefunction(run):

        @functools.wraps(run)
        async def checked_later(request: HttpRequest, **rest: Any) -> Any:
            return refusal(request) or await run(request, **rest)

        return checked_later

    @functools.wraps(run)
    def checked(request: HttpRequest, **rest: Any) -> Any:
        return refusal(request) or run(request, **rest)

    return checked
