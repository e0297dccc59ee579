from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events.log import Record
from testbed.experiment.export_perfetto import export_perfetto
from testbed.experiment.export_perfetto_traffic import ENGINES, MEMORY, MOST_TRANSFERS, RESOURCES, TURNS, traffic_events
from testbed.metrics.fold import Folding
from testbed.metrics.table import FOLDS
from testbed.metrics.traffic_timeline import TrafficState, Transfer
from testbed.units import MILLISECOND as MS
from tests.testbed.experiment.test_export_perfetto import check, slices
from tests.testbed.metrics.agentic_stories import agentic_run
from tests.testbed.metrics.stories import nonsense, small_run


def trace(records: list[Record]) -> list[dict[str, Any]]:
    folding = Folding({name: FOLDS[name] for name in ("timeline", "traffic")}).take_all(records)
    data = export_perfetto({"ours": folding.result("timeline")}, {"ours": folding.result("traffic")})
    events: list[dict[str, Any]] = json.loads(data)["traceEvents"]
    return events


def threads(events: list[dict[str, Any]], pid: int) -> list[str]:
    return [event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == pid]


@settings(max_examples=60, deadline=None)
@given(st.one_of(nonsense(), st.builds(agentic_run, st.integers(1, 2), st.integers(1, 3))))
def test_any_log_nests(records: list[Record]) -> None:
    check(trace(records))


def test_turns_are_lanes_with_their_stages() -> None:
    events = trace(agentic_run(1, 2))
    assert threads(events, TURNS) == ["a0000.t000", "a0000.t001"]
    first = [event for event in slices(events, TURNS) if event["tid"] == 1]
    assert [event["name"] for event in first] == ["queued", "placed", "allocated", "ready", "prefilled", "decoding"]
    assert first[0]["args"] == {
        "node": "sched0", "detail": "", "path": "none", "hit_tokens": 0, "prompt_tokens": 60, "prefill": "pe0.0",
        "decode": "de0.0",
    }  # fmt: skip


def test_every_resource_is_a_lane_with_the_transfers_that_crossed_it() -> None:
    events = trace(agentic_run(1, 2, both_paths=False))
    names = threads(events, RESOURCES)
    assert {"pe0.snic0.snic_rx", "pe0.dram", "de0.cnic0.wire", "storage0.snic0.snic_tx"} <= set(names)
    lane = names.index("pe0.snic0.snic_rx") + 1
    (read,) = [event for event in slices(events, RESOURCES) if event["tid"] == lane]
    assert (read["name"], read["ts"], read["dur"]) == ("pe1-2", 51_000.0, 4_000.0)


def test_transfers_that_queue_stand_one_after_another() -> None:
    moves = [Transfer(0, end * MS, "t", "pe1-2", -1, "a", "b", 1, 1, ("x",)) for end in (3, 5, 9)]
    found = [event for event in traffic_events(TrafficState(transfers=moves), 0, "") if event["ph"] == "X"]
    assert [(event["ts"], event["dur"]) for event in found] == [(0, 3_000), (3_000, 2_000), (5_000, 4_000)]


def test_engines_and_memory_are_told() -> None:
    events = trace(agentic_run(1, 1))
    assert threads(events, ENGINES) == ["pe0.0", "de0.0"]
    counters = {event["name"] for event in events if event["ph"] == "C" and event["pid"] == MEMORY}
    assert counters == {
        "pe0.buffer bytes",
        "pe0.buffer waiting",
        "de0.hbm0 bytes",
        "de0.hbm0 waiting",
        "pe0 read queue",
    }


def test_what_is_not_drawn_is_said() -> None:
    most = MOST_TRANSFERS
    one = Transfer(0, 1, "t", "pe1-2", -1, "a", "b", 1, 1, ("x",))
    events = list(traffic_events(TrafficState(transfers=[one] * (most + 3)), 0, ""))
    assert threads(events, RESOURCES) == ["x", "3 more transfers are not drawn"]
    assert len([event for event in events if event["ph"] == "X"]) == most


def test_a_run_without_kv_traffic_has_none_of_these_processes() -> None:
    assert {event["pid"] for event in trace(small_run())} == {1, 2, 3, 4, 5}
