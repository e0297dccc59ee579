"""Every placement keeps the serving contract: the named points all of it, each combination of the axes its heart."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from testbed.baselines.host_driven_api import ApiServer
from testbed.baselines.host_driven_core import EngineCore
from testbed.baselines.host_driven_worker import Worker
from testbed.baselines.placed_parameters import PlacedParameters
from testbed.baselines.placed_payload import HostRelay, PromptWriter, StoredInput
from testbed.baselines.placed_wires import Courier
from testbed.baselines.placements import POINTS
from testbed.machine import Machine
from tests.conformance.serving_contract import ServingContract, many
from tests.conformance.serving_world import CAPACITY, Candidate, Left, ServingWorld, leave
from tests.conformance.test_serving_contract import BLINK


def left(machines: Mapping[str, Machine], parameters: PlacedParameters) -> Left:
    api, core, worker = machines["api"], machines["core"], machines["worker"]
    assert isinstance(api, ApiServer)
    assert isinstance(core, EngineCore)
    assert isinstance(worker, Worker)
    assert parameters.kv_blocks is not None
    between = {
        name: machine.held
        for name, machine in machines.items()
        if isinstance(machine, PromptWriter | HostRelay | StoredInput)
    }
    return {
        "requests": api.serving + core.requests,
        "work": api.working,
        "batch": len(core.batch),
        "steps": worker.steps,
        "blocks": parameters.kv_blocks - core.kv_blocks_free,
        "in flight": sum(one.in_flight for one in machines.values() if isinstance(one, Courier)),
        **between,
    }


def placed(**parameters: Any) -> Candidate:
    given = {"queue_limit": CAPACITY, "prompt_arena_tokens": 4_096, **parameters}
    return Candidate("placed", given, "clients", left)


class TestNamedPoints(ServingContract):
    """One point for each placement: three host-driven servers share theirs, and have suites of their own."""

    @pytest.fixture(params=["tensorrt-llm", "splitrpc", "lynx", "conspirator", "os2g", "blink"])
    def candidate(self, request: pytest.FixtureRequest) -> Candidate:
        stored = {"stored_kib": 64} if request.param == "os2g" else {}
        return placed(point=request.param, **stored)


ALL = [
    {"ingress": ingress, "payload": payload, "control": control, "storage": storage}
    for ingress, payload, control, storage in product(
        ("host", "dpu"), ("host_dram", "direct"), ("host", "dpu", "gpu"), ("host", "dpu")
    )
]


@pytest.fixture(scope="module")
def blink() -> Candidate:
    """The system whose texts all the others have to give."""
    return BLINK


def test_the_points_here_have_every_placement_that_is_published() -> None:
    here = {"tensorrt-llm", "splitrpc", "lynx", "conspirator", "os2g", "blink"}
    assert {point.placement for point in POINTS.values()} == {POINTS[name].placement for name in here}  # type: ignore[index]


@pytest.mark.parametrize("axes", ALL, ids=lambda axes: "-".join(axes.values()))
def test_every_combination_gives_blinks_texts_and_leaves_nothing(axes: dict[str, str], soak: bool) -> None:
    """Some come, some leave early, some find no room: the others' texts are the same to the letter everywhere."""
    count = 40 if soak else 10
    visits, departures = many(count, ignore_eos=True), {"r3": leave("r3", 1), "r6": leave("r6", 2)}
    world = ServingWorld(placed(stored_kib=64, **axes), visits, departures).run()
    assert all(value == 0 for value in world.left().values()), world.left()
    told = ServingWorld(BLINK, visits, departures).run()
    served = [f"r{number}" for number in range(count) if world.reason(f"r{number}") == "length"]
    assert len(served) >= count - 2 - (count - CAPACITY if soak else 0)
    for name in served:
        if told.reason(name) == "length":
            assert world.tokens(name) == told.tokens(name)
