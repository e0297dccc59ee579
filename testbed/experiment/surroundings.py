"""What a plan's neighbours are to a simulation: the contention that was measured for as many threads of them.

An emulation has real neighbours; a simulation has the quantiles of fixtures/profiles/host-contention.toml, measured on
this project's own host loop. Only nodes on the host's CPU set have any. The file is read here, outside machines.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from testbed.experiment.plan import NodePlan, Plan
from testbed.serving import profiles
from testbed.serving.host_work import Contention, ModelledProcessor, contention_of
from testbed.serving.profiles import PROFILES, ProfileError
from testbed.workload.streams import stream

HOST_CONTENTION = "host-contention.toml"


class HostContention(msgspec.Struct, frozen=True):
    """fixtures/profiles/host-contention.toml, as far as a simulation needs it."""

    source: str
    """How it was measured: command, machine, date, spread."""
    rows: tuple[Contention, ...]
    """Ascending by threads."""


def read_contention(folder: Path = PROFILES) -> HostContention:
    """Reads the file. Raises `ProfileError`."""
    return profiles.read(folder / HOST_CONTENTION, HostContention)


def contention_at(plan: Plan, node: NodePlan, folder: Path = PROFILES) -> Contention | None:
    """What neighbours do to `node`'s host work; None where it has none. Raises `ProfileError`."""
    threads = sum(neighbour.threads for neighbour in plan.neighbours)
    if node.cores != "host" or not threads:
        return None
    return contention_of(read_contention(folder).rows, threads)


def modelled_processor(plan: Plan, node: NodePlan) -> ModelledProcessor:
    """The processor of a host's node under the simulated clock. Raises `ProfileError`."""
    contention = contention_at(plan, node)
    rng = stream(plan.seed, "processor") if contention is not None else None
    return ModelledProcessor(contention, rng, node.processes)


def check_surroundings(plan: Plan, folder: Path = PROFILES) -> None:
    """Raises ValueError where a simulation would need a contention that nobody has measured."""
    if plan.clock != "simulated" or not plan.neighbours:
        return
    if not any(node.role == "host" and node.processes and node.cores == "host" for node in plan.nodes):
        return
    try:
        read_contention(folder)
    except ProfileError as error:
        names = ", ".join(neighbour.name for neighbour in plan.neighbours)
        needs = f"system {plan.system} has neighbours ({names}), and a simulation needs their measured contention"
        raise ValueError(f"{needs}: {error}; leave them out, or run on mininet") from None
