from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from testbed.baselines.placed_parameters import PlacedParameters
from testbed.baselines.placements import POINTS
from testbed.events.ordering import merge
from testbed.events.schema import TokensPublished, TokensStreamed
from testbed.experiment.assembly import SYSTEMS, assemble_node
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.outlines import Surroundings
from testbed.experiment.placed_system import PLACED
from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_tables
from testbed.experiment.sweep import Place
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.serving.tokens import ByteVocabulary, Vocabulary, deepseek_vocabulary

AXES = [
    dict(zip(("ingress", "payload", "control", "storage"), axes, strict=True))
    for axes in product(("host", "dpu"), ("host_dram", "direct"), ("host", "dpu", "gpu"), ("host", "dpu"))
]


def tables(**system: Any) -> dict[str, Any]:
    return {
        "name": "x", "title": "X", "systems": {"s": system},
        "workload": {"requests": 4, "arrivals": {"kind": "poisson", "rate_per_s": 20},
                     "lengths": {"kind": "sharegpt", "output_cap": 12}},
    }  # fmt: skip


def plan_of(clock: Literal["simulated", "wall"] = "simulated", **parameters: Any) -> Plan:
    spec = spec_from_tables(tables(kind="placed", **parameters), "x.toml")
    return compile_plan(spec, Place("s", (), 0), run="20260101-000000-0a1b2c", label="0a1b2c", clock=clock)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return deepseek_vocabulary()


def told(folder: Path, vocabulary: Vocabulary, **system: Any) -> list[tuple[int, Any]]:
    """What was published and streamed, and when."""
    run = prepare(spec_from_tables(tables(**system), "x.toml"), folder, clock="simulated")
    end = simulate(run.plans[0], run.trials[0], vocabulary=vocabulary)
    assert (end.outcome, end.detail) == ("passed", "")
    events = merge(run.trials[0].events)
    return [(one.t, one.event) for one in events if isinstance(one.event, TokensPublished | TokensStreamed)]


@pytest.mark.parametrize("shape", ["vllm", "sglang", "tensorrt-llm"])
def test_a_host_driven_point_is_that_server_to_the_nanosecond(
    tmp_path: Path, vocabulary: Vocabulary, shape: str
) -> None:
    ours = told(tmp_path, vocabulary, kind="placed", point=shape)
    theirs = told(tmp_path, vocabulary, kind="host-driven", shape=shape)
    assert ours == theirs
    assert ours


@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "-".join(axes.values()))
def test_every_combination_has_nodes_that_name_each_other_and_all_their_machines(axes: dict[str, str]) -> None:
    plan = plan_of(stored_kib=16, **axes)
    parameters = msgspec.convert(plan.parameters, PlacedParameters)
    found: dict[str, str] = {}
    for node in plan.nodes:
        for peer in node.attached:
            assert plan.node(peer).attached == (node.name,)
        for pair in node.queue_pairs:
            assert node.name in {back.peer for back in plan.node(pair.peer).queue_pairs}
        if node.role == "client":
            continue
        memories: dict[str, LocalMemory] = {region.name: PlainMemory(region.size) for region in node.regions}
        machines = assemble_node(plan, node.name, Surroundings(memories, ByteVocabulary())).machines
        names = [machine.name for machine in machines]
        assert len(set(names)) == len(names)
        assert not node.queue_pairs or names[0] == "mail"
        assert {machine for group in node.processes for machine in group} <= set(names)
        found |= {name: node.name for name in names if "/" not in name and name != "mail"}
    route = parameters.route()
    assert found == {machine: parameters.placement().place_of(machine) for machine in route.machines()}


@pytest.mark.parametrize("name", POINTS)
def test_the_plan_says_which_system_it_is_and_what_is_extrapolated(name: str) -> None:
    notes = " ".join(plan_of(point=name).notes)
    assert POINTS[name].source in notes  # type: ignore[index]
    assert (f"the placement of {name}, an extrapolation, for it never ran token loops" in notes) is POINTS[
        name  # type: ignore[index]
    ].extrapolated


def test_what_no_emulated_node_has_is_simulated_only() -> None:
    assert PLACED.simulated_only is not None
    for name in ("vllm", "blink", "lynx"):
        assert PLACED.simulated_only(PlacedParameters(point=name)) == []  # type: ignore[arg-type]
    assert PLACED.simulated_only(PlacedParameters(point="splitrpc"))
    assert PLACED.simulated_only(PlacedParameters(point="blink", stored_kib=4)) == ["stored_kib"]
    with pytest.raises(ValueError, match=r"systems.s: .*payload = direct.*: a model that no emulation has"):
        plan_of("wall", point="splitrpc")
    assert plan_of("wall", point="blink").node("ingress0").role == "dpu"
    assert SYSTEMS["placed"] is PLACED
