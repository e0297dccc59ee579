"""What goes in and out of the API, as OpenAPI shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

OverrideValue = StrictBool | StrictInt | StrictFloat | StrictStr


class RunIn(Schema):
    """A run to be made: a spec of your own, or the name of a shipped experiment."""

    model_config = ConfigDict(extra="forbid")

    spec: Annotated[StrictStr | None, Field(max_length=200_000, description="Text of a TOML experiment file.")] = None
    experiment: Annotated[StrictStr | None, Field(max_length=120, examples=["blink/demo"])] = None
    overrides: Annotated[
        dict[str, OverrideValue],
        Field(max_length=100, description="As `looplane run --set`.", examples=[{"workload.arrivals.rate_per_s": 8}]),
    ] = {}
    on: Annotated[Literal["sim", "mininet"], Field(description="Simulated clock, or an emulated network.")] = "sim"


class RunOut(Schema):
    """A run. `state` says where it is, `outcome` how it ended; they are never mixed."""

    id: str
    label: str
    experiment: str
    question: str
    on: Literal["sim", "mininet"]
    systems: list[str]
    seed: int | None
    overrides: list[str]
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

    runs: list[RunOut]
    next: Annotated[str | None, Field(description="Send as `before` for the following page.")]


class Fault(Schema):
    """What was wrong."""

    code: str
    message: str
    path: Annotated[str | None, Field(description="The field of the request or of the experiment file.")] = None


class ErrorOut(Schema):
    """The one error shape."""

    error: Fault
