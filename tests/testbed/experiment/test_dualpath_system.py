"""DualPath's row: which machines stand where, what is refused, and nodes that die on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.events.client_events import RequestFinished
from testbed.events.fidelity_events import FaultInjected
from testbed.events.kv_events import NodeLost
from testbed.events.ordering import merge
from testbed.events.run_events import NodeHeartbeat, NodeStopped
from testbed.experiment.assembly import assemble_node
from testbed.experiment.complaints import SpecError
from testbed.experiment.launch import prepare
from testbed.experiment.outlines import Surroundings
from testbed.experiment.reading import read_spec
from testbed.experiment.simulated_faults import KILLED
from testbed.experiment.simulation import simulate
from testbed.network.memory_region import LocalMemory, PlainMemory

EXPERIMENTS = Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "dualpath"
SMALL, FAILURE = EXPERIMENTS / "small.toml", EXPERIMENTS / "failure.toml"
ENGINES = ["leader", "engine0", "engine1"]


@pytest.mark.parametrize(
    ("node", "machines"),
    [
        ("client0", ["agents"]),
        ("sched0", ["mail", "api"]),
        ("pe0", ["mail", "traffic", "storage", *ENGINES]),
        ("de0", ["mail", "traffic", "storage", *ENGINES]),
        ("storage1", ["mail", "traffic", "server"]),
    ],
)
def test_each_node_has_its_machines_mail_first(node: str, machines: list[str], tmp_path: Path) -> None:
    (plan,) = prepare(read_spec(SMALL), tmp_path, clock="simulated").plans
    memories: dict[str, LocalMemory] = {region.name: PlainMemory(region.size) for region in plan.node(node).regions}
    assert [machine.name for machine in assemble_node(plan, node, Surroundings(memories)).machines] == machines


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("systems.dualpath.prefill_hbm_kv_bytes=1000", "prefill_hbm_kv_bytes: 1000: room for at least one block"),
        ("systems.dualpath.replicas=3", "chains of that length need as many storage nodes"),
        ('faults=[{node="pe7", at_s=1}]', "one of pe0, de0, storage0, storage1, each once"),
        ('faults=[{node="sched0", at_s=1}]', "one of pe0, de0, storage0, storage1, each once"),
        ('faults=[{node="de0", at_s=1}, {node="de0", at_s=2}]', "each once"),
        ('faults=[{node="de0", at_s=0}]', "faults[0].at_s"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(override: str, words: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_spec(SMALL, [override])
    assert words in str(refused.value)


def test_prefill_engines_may_have_hbm_of_another_size(tmp_path: Path) -> None:
    (plan,) = prepare(
        read_spec(SMALL, ["systems.dualpath.prefill_hbm_kv_bytes=200000000"]), tmp_path, clock="simulated"
    ).plans
    sizes = {node: next(one.size for one in plan.node(node).regions if one.name == "hbm1") for node in ("pe0", "de0")}
    assert sizes["de0"] == pytest.approx(10 * sizes["pe0"], rel=0.01)


def test_a_system_of_agents_needs_trajectories() -> None:
    with pytest.raises(SpecError, match="a system that serves a workload with trajectories"):
        read_spec(EXPERIMENTS.parent / "blink" / "small.toml", ['workload.trajectories={kind="fixed"}'])


def test_nodes_that_die_cost_no_turn_and_say_no_more(tmp_path: Path) -> None:
    """A storage node and a decode node die in the middle: every turn is answered all the same."""
    run = prepare(read_spec(FAILURE), tmp_path, clock="simulated")
    end = simulate(run.plans[0], run.trials[0])
    assert (end.outcome, end.detail) == ("passed", "")
    records = list(merge(run.trials[0].events))
    killed = {record.event.what: record.t for record in records if isinstance(record.event, FaultInjected)}
    assert killed == {"storage1": 100_000_000, "de1": 200_000_000}
    for node, moment in killed.items():
        own = [record for record in records if record.node == node]
        assert isinstance(own[-1].event, NodeStopped)
        assert (own[-1].t, own[-1].event.code) == (moment, KILLED)
        assert not any(isinstance(record.event, NodeHeartbeat) and record.t > moment for record in own)
    assert {record.event.lost for record in records if isinstance(record.event, NodeLost)} == set(killed)
    assert sum(isinstance(record.event, RequestFinished) for record in records) == 72


def test_the_same_seed_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    logs = []
    for attempt in ("a", "b"):
        run = prepare(read_spec(SMALL), tmp_path / attempt, clock="simulated", run="20260101-000000-0a1b2c")
        simulate(run.plans[0], run.trials[0])
        logs.append({path.name: path.read_bytes() for path in sorted(run.trials[0].events.iterdir())})
    assert logs[0] == logs[1]
