"""What-ifs of the paper's hardware section in whole small runs: who gains, what is moved, what is refused."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from testbed.dualpath.foresight import foresight
from testbed.dualpath.parameters import DualPathParameters
from testbed.events.kv_events import BlockRejected, CollectiveFinished, TransferFinished
from testbed.events.ordering import merge
from testbed.experiment.complaints import SpecError
from testbed.experiment.launch import prepare
from testbed.experiment.reading import read_spec, spec_from_tables
from testbed.experiment.simulation import simulate
from testbed.machine import Event
from testbed.units import Nanoseconds
from tests.scenarios.whole_run import TOP
from tests.testbed.baselines.pool_world import PoolWorld

WAYS = ("none", "cnic", "copy-engine", "pcie-qos", "nic-integrated")
PCIE_QOS = TOP / "fixtures" / "experiments" / "dualpath" / "pcie-qos.toml"
RATES = {"compute": 400_000_000_000, "storage": 400_000_000_000}


class Ran:
    """What a run has moved, and how long it took."""

    def __init__(self, parameters: tuple[str, ...], kind: str) -> None:
        world = PoolWorld(*parameters, kind=kind, agents=3)
        assert world.run()
        assert not world.of(BlockRejected)
        self.hops: Counter[str] = Counter()
        self.resources: Counter[str] = Counter()
        events: list[Event] = [event for _, _, event in world.events]
        for event in events:
            if isinstance(event, TransferFinished):
                self.hops[event.hop] += event.bytes
                for name in event.crossed:
                    self.resources[f"{name[:2]}.{name.rpartition('.')[2]}"] += event.bytes
        self.end = max(moment for moment, _, _ in world.events)


@cache
def ran(*parameters: str, kind: str = "dualpath") -> Ran:
    return Ran(parameters, kind)


def test_collectives_beside_the_copy_engine_take_longer_and_with_pcie_classes_do_not(tmp_path: Path) -> None:
    """Bursts of four members, of which one copies all the time (fixtures/experiments/dualpath/pcie-qos.toml)."""
    spec = read_spec(PCIE_QOS, ("expect={}", *(f"systems.{name}.bursts=12" for name in WAYS)))
    run = prepare(spec, tmp_path, clock="simulated")
    longest: dict[str, Nanoseconds] = {}
    for plan, trial in zip(run.plans, run.trials, strict=True):
        assert simulate(plan, trial).outcome == "passed"
        here = [record.event for record in merge(trial.events) if record.node == "pe3"]
        collectives = [event for event in here if isinstance(event, CollectiveFinished)]
        assert len(collectives) == 12
        longest[plan.system] = max(event.duration for event in collectives)
    alone = longest["none"]
    assert longest["copy-engine"] > 1.5 * alone
    assert longest["copy-engine"] < 2.05 * alone
    for gives_way in ("cnic", "pcie-qos", "nic-integrated"):
        assert longest[gives_way] < 1.02 * alone


def test_every_way_of_copies_moves_the_same_bytes_over_its_own_resources() -> None:
    """Bytes of each hop that storage reads, decode landing and persisting need are the same; what they cross is not."""
    ways = {copy: ran(f'copy = "{copy}"') for copy in ("cnic", "copy_engine", "nic_integrated")}
    always = ("pe8-9", "de6-7", "persist-copy", "persist-write")
    whole = {copy: sum(way.hops[hop] for hop in always) for copy, way in ways.items()}
    assert len(set(whole.values())) == 1
    for copy, way in ways.items():
        up = way.hops["pe8-9"] + way.hops["de6-7"]
        down, twice = way.hops["persist-copy"], copy == "cnic"
        arrived = way.hops["pe5-7"] + way.hops["de-miss"]
        assert way.resources["de.cnic_write"] == arrived + up + (down if twice else 0)
        assert way.resources["de.cnic_read"] == way.hops["de3-5"] + down + (up if twice else 0)
        assert way.resources["pe.copy_engine"] == (way.hops["pe3-4"] if copy == "copy_engine" else 0)
        assert way.resources["de.copy_engine"] == (up + down if copy == "copy_engine" else 0)


def test_one_crossing_takes_no_longer_than_two() -> None:
    slow = ("pcie_gbyte_s = 4", 'read_path = "prefill"')
    assert ran(*slow, 'copy = "nic_integrated"').end < ran(*slow).end


def test_slower_cxl_memory_takes_longer_and_one_like_dram_as_long() -> None:
    dram, fast, slow, slower = (
        ran(f"dram_gbyte_s = {20 if not where else 500}", *where)
        for where in (
            (),
            ('cxl = "buffers"', "cxl_gbyte_s = 20", "cxl_latency = 0"),
            ('cxl = "buffers"', "cxl_gbyte_s = 4"),
            ('cxl = "buffers"', "cxl_gbyte_s = 1"),
        )
    )
    assert fast.end == dram.end
    assert fast.end < slow.end < slower.end
    assert slow.resources["de.dram"] == slow.resources["pe.dram"] == 0
    assert fast.resources["de.cxl"] == dram.resources["de.dram"] > 0


def test_a_pool_in_cxl_is_a_tier_before_the_buffers_in_dram() -> None:
    pool = ("dram_pool_bytes = 400_000_000", 'cxl = "pool"')
    cxl, plain = ran(*pool, "cxl_gbyte_s = 500", "cxl_latency = 0", kind="dram_pool"), ran(pool[0], kind="dram_pool")
    came = cxl.hops["pool-local"] + cxl.hops["pool-remote"]
    assert came > 0
    assert cxl.resources["pe.cxl"] + cxl.resources["de.cxl"] == came
    assert cxl.hops == plain.hops
    assert ran(*pool, "cxl_gbyte_s = 0.5", kind="dram_pool").end > cxl.end


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"pcie_qos": True}, "pcie_qos is for copies by the GPU's copy engine, and copy is cnic"),
        ({"pcie_qos": True, "copy": "nic_integrated"}, "pcie_qos is for copies by the GPU's copy engine"),
        ({"copy": "copy_engine", "pcie_gbyte_s": 0}, "copy is copy_engine, which needs the PCIe link"),
        ({"copy": "nic_integrated", "pcie_gbyte_s": 0}, "copy is nic_integrated, which needs the PCIe link"),
        ({"cxl": "pool"}, "cxl is pool and there is no pool to lie there; it needs dram_pool_bytes"),
        ({"cxl": "buffers", "read_path": "bypass"}, "cxl is buffers and read_path is bypass"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(parameters: dict[str, Any], words: str, tmp_path: Path) -> None:
    text = {"kind": "fixed", "agents": 1, "turns": 2, "first": 128, "append": 64, "generate": 2}
    tables = {
        "name": "x", "title": "X", "systems": {"d": {"kind": "dualpath", **parameters}},
        "workload": {"trajectories": text},
    }  # fmt: skip
    with pytest.raises(SpecError) as found:
        prepare(spec_from_tables(tables, "x.toml"), tmp_path, clock="simulated")
    assert not list(tmp_path.iterdir())
    (line,) = str(found.value).splitlines()
    assert "systems.d" in line
    assert words in line


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, ""),
        ({"copy": "copy_engine"}, "taking turns with all of the CNIC"),
        ({"copy": "copy_engine", "pcie_qos": True}, "in the lane of KV, behind collectives"),
        ({"copy": "nic_integrated"}, "in an emulation they are loop-backs"),
        ({"cxl": "buffers"}, "an emulation models neither DRAM nor CXL"),
    ],
)
def test_a_plan_says_what_an_emulation_does_not_model(parameters: dict[str, Any], words: str) -> None:
    notes = foresight(DualPathParameters(**parameters), RATES)
    assert len([note for note in notes if "emulation" in note]) == bool(words)
    assert words in "\n".join(notes)


def test_cxl_buffers_are_the_memory_of_the_bounds() -> None:
    found = "\n".join(foresight(DualPathParameters(cxl="buffers", cxl_gbyte_s=160), RATES))
    assert "M=160 GB/s a node" in found
