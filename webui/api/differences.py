"""`/api/v1/runs/{a}/diff/{b}`: two runs held against each other, as the page Compare does it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from django.http import HttpRequest, JsonResponse
from ninja import Path, Router

from testbed.comparison.comparison import RunDiff
from webui.accounts.callers import caller_of
from webui.accounts.roles import Right
from webui.api.authentication import require
from webui.api.description import REFERENCE, answers
from webui.api.errors import ApiError
from webui.api.schemas import ErrorOut
from webui.compare.selectors import NoSuchRun, NotComparable, run_diff

router = Router(tags=["results"])

SCHEMA, COMPONENTS = msgspec.json.schema_components([RunDiff], ref_template=REFERENCE)
"""The answer's shape, from the one definition."""

Side = Annotated[
    str,
    Path(max_length=200, description="A run's id or its last six digits, or `RUN:SYSTEM` or `RUN:TRIAL` for a part."),
]


@router.get(
    "/runs/{a}/diff/{b}",
    response={404: ErrorOut},
    summary="What differs between two runs",
    openapi_extra=answers(200, description="The comparison.", content={"application/json": SCHEMA[0]}),
)
def runs_diff(request: HttpRequest, a: Side, b: Side) -> JsonResponse:
    """Settings that differ first, then every figure with its change and its spread, and a sentence that says it.

    `complete` is false while repeats are still being read: ask again for the spreads.
    """
    caller = caller_of(request)
    require(caller, Right.READ)
    try:
        diff: Any = run_diff(caller=caller, a=a, b=b)
    except NoSuchRun as fault:
        raise ApiError(404, "not_found", str(fault)) from None
    except NotComparable as fault:
        raise ApiError(422, "not_comparable", str(fault)) from None
    return JsonResponse(msgspec.to_builtins(diff))
