from __future__ import annotations

from testbed.metrics.fold import Folding
from testbed.metrics.traffic_timeline import TrafficFold, TrafficState
from testbed.units import MILLISECOND as MS
from tests.testbed.metrics.agentic_stories import FULL_BYTES, LAYERS, agentic_run
from tests.testbed.metrics.stories import small_run


def of(agents: int = 1, turns: int = 2) -> TrafficState:
    records = agentic_run(agents, turns, both_paths=False)
    found: TrafficState = Folding({"t": TrafficFold()}).take_all(records).result("t")
    return found


def test_every_turn_has_its_stages_in_order_and_its_place() -> None:
    found = of()
    stages = ["queued", "placed", "allocated", "ready", "prefilled", "decoding", "ended"]
    assert [[stage.stage for stage in turn] for turn in found.stages.values()] == [stages, stages]
    assert found.stages["a0000.t001"][1].t == (10 + 38 + 2) * MS
    assert found.paths.turns["a0000.t001"].prefill_blocks == 10


def test_transfers_and_batches_keep_begin_and_end() -> None:
    found = of()
    (read,) = [one for one in found.transfers if one.hop == "pe1-2"]
    assert (read.began, read.end, read.bytes) == (51 * MS, 55 * MS, 10 * FULL_BYTES)
    assert [one.layer for one in found.transfers if one.hop == "pe3-4"] == list(range(LAYERS))
    prefill = [one for one in found.forwards if one.kind == "prefill"]
    assert [(one.engine, one.began, one.end) for one in prefill] == [
        ("pe0.0", 17 * MS, 25 * MS),
        ("pe0.0", 55 * MS, 63 * MS),
    ]


def test_memory_queues_and_accidents_are_kept() -> None:
    found = of()
    assert {one.place for one in found.held} == {"pe0.buffer", "de0.hbm0"}
    assert [one.node for one in found.queues] == ["pe0", "pe0"]
    assert [one.words for one in found.accidents] == [
        "block ab at storage0: its checksum does not fit its bytes",
        "storage9 is lost",
        "a0000.t000 placed again: lost",
    ]


def test_a_run_without_kv_traffic_has_none() -> None:
    found: TrafficState = Folding({"t": TrafficFold()}).take_all(small_run()).result("t")
    assert found == TrafficState()
