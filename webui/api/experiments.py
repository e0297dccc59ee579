"""`/api/v1/experiments`, `/schema/experiment`, `/validate`: what is shipped, and whether an experiment is sound."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Path, Router, Schema

from testbed.experiment.schema_export import experiment_schema
from webui.accounts.callers import caller_of
from webui.accounts.roles import Right
from webui.api.asking import asked
from webui.api.authentication import require
from webui.api.errors import ApiError
from webui.api.foresight import foresee
from webui.api.schemas import ErrorOut, ExperimentAsked
from webui.catalogue.selectors import Experiment, experiment_get, experiment_list

router = Router(tags=["experiments"])


class ExperimentOut(Schema):
    """A shipped experiment."""

    name: str
    question: str
    about: str
    systems: list[str]
    file: str
    trials: int
    requests: Annotated[
        int,
        Field(description="0: none; a server for clients of one's own, or systems that make their own traffic."),
    ]


class ExperimentWhole(ExperimentOut):
    """A shipped experiment with its text."""

    spec: Annotated[str, Field(description="The TOML file.")]


@router.get("/experiments", response={200: list[ExperimentOut]}, summary="The shipped experiments")
def experiments(request: HttpRequest) -> list[dict[str, Any]]:
    """Each asks one question; start one with `POST /runs` and its name."""
    require(caller_of(request), Right.READ)
    return [_told(item) for item in experiment_list() if not item.fault]


@router.get("/experiments/{path:name}", response={200: ExperimentWhole, 404: ErrorOut}, summary="One experiment")
def experiment(
    request: HttpRequest,
    name: Annotated[str, Path(max_length=120, description="As listed.", examples=["blink/small"])],
) -> dict[str, Any]:
    """With the text of its file, to be changed and sent as `spec`."""
    require(caller_of(request), Right.READ)
    found = experiment_get(name=name)
    if found is None or found.fault:
        raise ApiError(404, "not_found", f"There is no experiment {name[:80]!r}.")
    return {**_told(found), "spec": found.text}


def _told(item: Experiment) -> dict[str, Any]:
    facts = item.facts
    return {
        "name": item.name,
        "question": item.question,
        "about": item.about,
        "systems": list(item.systems),
        "file": item.file,
        "trials": facts.trials if facts else 0,
        "requests": facts.requests if facts else 0,
    }


@router.get("/schema/experiment", response={200: dict[str, Any]}, summary="JSON schema of experiment files")
def schema_experiment(request: HttpRequest) -> dict[str, Any]:
    """As `looplane schema` prints it: every field with its meaning, unit, default and bounds."""
    require(caller_of(request), Right.READ)
    return experiment_schema()


class SpecFaultOut(Schema):
    """One thing that is wrong with an experiment."""

    path: Annotated[str, Field(description="The field of the file; empty where there is none, as with bad TOML.")]
    message: str


class PortOut(Schema):
    """An interface of a node."""

    interface: str
    fabric: str
    rate_bits_per_s: Annotated[
        float, Field(description="Of the modelled hardware; an emulation divides it by `byte_scale` and `dilation`.")
    ]


class NodeOut(Schema):
    """A node of the plan."""

    name: str
    role: str
    ports: list[PortOut]


class PlanOut(Schema):
    """The plan of the first trial, in short."""

    system: str
    dilation: float
    byte_scale: int
    nodes: list[NodeOut]
    notes: list[str]


class ForesightOut(Schema):
    """What a run of this experiment would be."""

    ok: bool
    faults: Annotated[list[SpecFaultOut], Field(description="Every fault, not only the first.")]
    systems: list[str]
    trials: int
    requests: Annotated[int, Field(description="Of one trial; 0: none.")]
    expectations: int
    plan: PlanOut | None


@router.post("/validate", response={200: ForesightOut}, summary="Read an experiment without running it")
def validate(request: HttpRequest, body: ExperimentAsked) -> dict[str, Any]:
    """200 also for one that is wrong: `ok` says so and `faults` has every fault with its place. Makes nothing."""
    require(caller_of(request), Right.READ)
    what = asked(body)
    return foresee(text=what.text, name=what.name, overrides=what.overrides, backend=body.on)
