"""`/api/v1/topologies`: the networks that the shipped experiments are run on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from webui.accounts.callers import caller_of
from webui.accounts.roles import Right
from webui.api.authentication import require
from webui.api.errors import ApiError
from webui.api.experiments import PortOut
from webui.api.schemas import ErrorOut
from webui.catalogue.selectors import experiment_get, experiment_list
from webui.catalogue.topologies import Topology, topologies_of

router = Router(tags=["experiments"])


class TopologyNodeOut(Schema):
    """A node."""

    name: str
    role: str
    attached: Annotated[list[str], Field(description="Nodes at the other end of a PCIe link of its own.")]
    ports: list[PortOut]


class LaneOut(Schema):
    """A virtual lane: its weights, in units of 64 bytes, in the two arbitration tables."""

    number: int
    high: int
    low: int


class FabricOut(Schema):
    """A network: one switch and its ports."""

    name: str
    protocol: Annotated[str, Field(description="`RoCEv2` or `TCP`.")]
    mtu: int
    high_limit: Annotated[
        int | None,
        Field(description="Units of 4,096 bytes before one packet of the low table; 255: no limit; null: no lanes."),
    ]
    lanes: list[LaneOut]


class TopologyUseOut(Schema):
    """A system of an experiment that is built so."""

    experiment: str
    system: str
    kind: str


class TopologyOut(Schema):
    """Nodes, ports, fabrics and lanes, as the planner makes them."""

    name: Annotated[str, Field(description="Of its first use: `experiment:system`.")]
    summary: str
    nodes: list[TopologyNodeOut]
    fabrics: list[FabricOut]
    used_by: list[TopologyUseOut]


@router.get(
    "/topologies", response={200: list[TopologyOut], 404: ErrorOut}, summary="The networks of the shipped experiments"
)
def topologies(
    request: HttpRequest,
    experiment: Annotated[
        str, Query(max_length=120, description="Only those of this one, as `GET /experiments` names it.")
    ] = "",
) -> list[dict[str, Any]]:
    """Each once, with the experiments and systems that use it: the first trial of each, as before scaling. The plan of
    a file of one's own, and on which clock, is in the answer of `POST /validate`.
    """
    require(caller_of(request), Right.READ)
    if not experiment:
        return [_told(one) for one in topologies_of(experiment_list())]
    found = experiment_get(name=experiment)
    if found is None or found.fault:
        raise ApiError(404, "not_found", f"There is no experiment {experiment[:80]!r}.", path="experiment")
    return [_told(one) for one in topologies_of([found])]


def _told(topology: Topology) -> dict[str, Any]:
    told = asdict(topology)
    return {"name": told["name"], **told["shape"], "used_by": told["used_by"]}
