"""DualPath on Mininet: the small experiment, nodes that are killed, and the same trial under both clocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.events.client_events import RequestFailed, RequestFinished
from testbed.events.kv_events import TransferFinished
from testbed.events.ordering import merge
from testbed.experiment.launch import Prepared, launch_wall, prepare
from testbed.experiment.reading import read_spec
from testbed.experiment.simulation import simulate

pytestmark = pytest.mark.root

EXPERIMENTS = Path(__file__).resolve().parents[2] / "fixtures" / "experiments" / "dualpath"


def emulated(name: str, folder: Path, *overrides: str) -> Prepared:
    """A trial on namespace nodes, run to its end."""
    run = prepare(read_spec(EXPERIMENTS / name, ['nodes="namespace"', *overrides]), folder, clock="wall")
    end = launch_wall(run.trials[0])
    assert end.code == 0, end.last_words
    return run


def bytes_by_hop(run: Prepared) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in merge(run.trials[0].events):
        if isinstance(record.event, TransferFinished):
            found[record.event.hop] = found.get(record.event.hop, 0) + record.event.bytes
    return found


def test_both_clocks_move_the_same_bytes_in_all(tmp_path: Path) -> None:
    """Which side reads a turn may differ with a race of two queues; what is read, and landed, may not."""
    real = emulated("small.toml", tmp_path)
    model = prepare(read_spec(EXPERIMENTS / "small.toml"), tmp_path, clock="simulated")
    assert simulate(model.plans[0], model.trials[0]).outcome == "passed"
    on_mininet, simulated = bytes_by_hop(real), bytes_by_hop(model)
    for hops in (("pe1-2", "de1-2"), ("pe8-9", "de6-7")):
        found, expected = (sum(each.get(hop, 0) for hop in hops) for each in (on_mininet, simulated))
        assert found == pytest.approx(expected, rel=0.1)
    finished = [record for record in merge(real.trials[0].events) if isinstance(record.event, RequestFinished)]
    assert len(finished) == 24


def test_turns_outlive_a_storage_node_and_a_decode_node(tmp_path: Path) -> None:
    """No request hangs, and none fails: the dead decode node's turns are placed again."""
    run = emulated(
        "failure.toml", tmp_path, "workload.trajectories.turns=6", "systems.dualpath.lost_after_periods=60"
    )
    records = list(merge(run.trials[0].events))
    assert not [record.event for record in records if isinstance(record.event, RequestFailed)]
    assert sum(isinstance(record.event, RequestFinished) for record in records) == 36
