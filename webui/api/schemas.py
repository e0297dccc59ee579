"""What goes in and out of the API, as OpenAPI shows it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr


def _number(value: Any) -> Any:
    """Pydantic would take true and "1" for a whole number, and JSON Schema calls 1.0 one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a whole number, without quotes")
    return value


_MOMENT = re.compile(r"\A\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})\Z", re.ASCII)


def _moment(value: Any) -> Any:
    """Pydantic would take a number, or a date alone."""
    if isinstance(value, str) and not _MOMENT.match(value):
        raise ValueError("a moment by RFC 3339 with its offset, as 2026-11-30T16:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]
Whole = Annotated[int, BeforeValidator(_number)]
OverrideValue = StrictBool | StrictInt | StrictFloat | StrictStr


class ExperimentAsked(Schema):
    """An experiment: a text of the caller's own, or the name of a shipped one, with changes."""

    model_config = ConfigDict(extra="forbid")

    spec: Annotated[StrictStr | None, Field(max_length=200_000, description="Text of a TOML experiment file.")] = None
    experiment: Annotated[StrictStr | None, Field(max_length=120, examples=["blink/demo"])] = None
    overrides: Annotated[
        dict[str, OverrideValue],
        Field(max_length=100, description="As `looplane run --set`.", examples=[{"workload.arrivals.rate_per_s": 8}]),
    ] = {}
    on: Annotated[Literal["sim", "mininet"], Field(description="Simulated clock, or an emulated network.")] = "sim"


Tags = Annotated[
    list[Annotated[StrictStr, Field(min_length=1, max_length=30, pattern="^[a-z0-9][a-z0-9._-]*$")]],
    Field(max_length=10, description="Words to find the run by.", examples=[["nightly", "pr-81"]]),
]
Groups = Annotated[
    list[Annotated[StrictStr, Field(min_length=1, max_length=150)]],
    Field(max_length=20, description="Names of one's groups; needed where visibility is `groups`."),
]


class RunIn(ExperimentAsked):
    """A run to be made."""

    tags: Tags = []
    needs: Annotated[
        list[Annotated[StrictStr, Field(min_length=1, max_length=60)]],
        Field(max_length=20, description="Tags and abilities that its bench must have.", examples=[["simulate"]]),
    ] = []
    time_limit_s: Annotated[
        Annotated[Whole, Field(ge=10, le=86_400)] | None,
        Field(description="Wall seconds until it is asked to end; one's quota unless given."),
    ] = None
    visibility: Literal["private", "groups", "everyone"] = "private"
    groups: Groups = []
    clone_of: Annotated[
        Annotated[StrictStr, Field(max_length=40)] | None, Field(description="Id of the run that it was made from.")
    ] = None


class RunChange(Schema):
    """What is to be another; what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    tags: Tags | None = None
    visibility: Literal["private", "groups", "everyone"] | None = None
    groups: Groups | None = None


class RunLonger(Schema):
    """By how much a run's time is to end later."""

    model_config = ConfigDict(extra="forbid")

    minutes: Annotated[Whole, Field(ge=1, le=1440, description="The whole stays within one's quota.")]


class RunBrief(Schema):
    """A run as a list has it. `state` says where it is, `outcome` how it ended; they are never mixed."""

    id: str
    label: str
    experiment: str
    question: str
    on: Literal["sim", "mininet"]
    bench: Annotated[str | None, Field(description="Where it is carried out, once a worker has taken it.")]
    systems: list[str]
    seed: int | None
    overrides: list[str]
    revision: Annotated[str | None, Field(description="Git revision of the console that took it.")]
    tags: list[str]
    needs: Annotated[list[str], Field(description="What its bench must have.")]
    visibility: Literal["private", "groups", "everyone"]
    clone_of: str | None
    state: Literal["queued", "preparing", "running", "finalising", "finished"]
    outcome: Literal["passed", "failed", "errored", "cancelled", "lost"] | None
    detail: str
    fidelity: str | None
    cancelling: bool
    owner: str | None
    origin: Literal["console", "folder"]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    ends_by: Annotated[datetime | None, Field(description="When it is asked to end; `extend` makes it later.")]
    expected_s: Annotated[float | None, Field(description="Seconds that it is thought to take.")]


class QueueOut(Schema):
    """Where a queued run stands."""

    position: int | None
    reason: str
    starts_at: datetime | None


class RunOut(RunBrief):
    """A run, whole."""

    queue: Annotated[QueueOut | None, Field(description="Null once it is not queued any more.")]
    groups: Annotated[list[str], Field(description="Who else reads it where visibility is `groups`.")]
    time_limit_s: int | None
    trials: list[str]
    summary: Annotated[
        dict[str, Any] | None,
        Field(
            description="What `looplane run --json` prints, once the run is finished. Of one longer than 256 KiB "
            "a shorter form: `left_out` then names the parts that stand in the folder's summary.json alone."
        ),
    ] = None


class RunPage(Schema):
    """A page of runs, newest first."""

    runs: list[RunBrief]
    next: Annotated[str | None, Field(description="Send as `cursor` for the following page; null on the last.")]


class Fault(Schema):
    """What was wrong."""

    code: str
    message: str
    path: Annotated[str | None, Field(description="The field of the request or of the experiment file.")] = None


class ErrorOut(Schema):
    """The one error shape."""

    error: Fault
