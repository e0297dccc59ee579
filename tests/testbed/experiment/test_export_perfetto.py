"""The trace is checked by an own reader of the format, after the rules in Perfetto's and Chrome's documents."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events import schema
from testbed.events.log import Record
from testbed.experiment.export_perfetto import LAUNCHES, LINKS, REQUESTS, SLOTS, export_perfetto
from testbed.metrics.fold import Folding
from testbed.metrics.timeline import TimelineFold, TimelineState
from tests.testbed.metrics.stories import MS, Story, nonsense, sensible, serve, small_run, started


def timeline(records: list[Record]) -> TimelineState:
    found: TimelineState = Folding({"t": TimelineFold()}).take_all(records).result("t")
    return found


def trace(records: list[Record]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(export_perfetto({"blink": timeline(records)}))["traceEvents"]
    return events


def check(events: list[dict[str, Any]]) -> None:
    """Raises AssertionError where a viewer would complain: fields, and slices of a thread that overlap."""
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        assert event["ph"] in {"X", "M", "C"}
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["args"]
            continue
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
            continue
        start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
        assert length >= 0
        threads[event["pid"], event["tid"]].append((start, start + length))
    for slices in threads.values():
        open_ends: list[int] = []
        latest = None
        # In the file's own order at equal starts: a stable sort, as viewers do.
        for start, end in sorted(slices, key=lambda one: one[0]):
            assert latest is None or start >= latest
            latest = start
            while open_ends and open_ends[-1] <= start and not (open_ends[-1] == start == end):
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], "a slice ends after the one around it"
            open_ends.append(end)


def slices(events: list[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["pid"] == pid]


def test_the_checker_sees_an_overlap() -> None:
    one = {"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": 0.0, "dur": 5.0}
    with pytest.raises(AssertionError):
        check([one, {**one, "ts": 3.0}])
    check([one, {**one, "ts": 3.0, "dur": 2.0}, {**one, "ts": 5.0}])


def test_a_run_nests() -> None:
    check(trace(small_run(requests=6, tokens=8, gap_ms=15)))


@settings(max_examples=60, deadline=None)
@given(st.one_of(nonsense(), sensible()))
def test_any_log_nests(records: list[Record]) -> None:
    check(trace(records))


def test_a_request_is_one_lane_with_phases_and_tokens_inside() -> None:
    events = trace(serve(Story().at(0, "bench", started()), 1, 100, tokens=3).records())
    names = [event["name"] for event in slices(events, REQUESTS)]
    assert names == ["q1", "sending", "queued", "prefill", "decode", "token 1", "token 2", "delivery"]
    whole = slices(events, REQUESTS)[0]
    assert (whole["ts"], whole["dur"]) == (100_000.0, 32_600.0)
    assert set(whole["args"]["steps"]) == {str(step) for step in range(1, 14)}


def test_a_pause_lies_inside_the_token_that_waits() -> None:
    story = serve(Story().at(0, "bench", started()), 1, 0, tokens=4)
    story.at(27, "gpu0", schema.SlotMoved(1, 1, "decode_processing", "decode_paused", 1))
    story.at(29, "gpu0", schema.SlotMoved(1, 1, "decode_paused", "decode_processing", 1))
    events = trace(story.records())
    check(events)
    (pause,) = [event for event in slices(events, REQUESTS) if event["name"] == "paused"]
    assert (pause["ts"], pause["dur"]) == (27_000.0, 2_000.0)


def test_slots_launches_and_relaunches_have_lanes_of_their_own() -> None:
    story = serve(Story().at(0, "bench", started()), 1, 0, tokens=3, slot=17)
    story.at(60, "gpu0", schema.WindowRelaunched(1, 120, 5500))
    events = trace(story.records())
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named[SLOTS, 18] == "slot 17"
    assert {name for (pid, _), name in named.items() if pid == LAUNCHES} == {"gpu0", "gpu0 window relaunches"}
    launches = [event for event in slices(events, LAUNCHES) if event["name"] != "tail launch"]
    assert [event["name"] for event in launches] == ["prefill", "decode", "decode"]
    assert launches[0]["args"]["launch_cost_ns"] == 2000
    assert [event["dur"] for event in slices(events, LAUNCHES) if event["name"] == "tail launch"] == [5.5]


def test_one_slot_number_in_two_rings_has_two_lanes() -> None:
    story = Story().at(0, "bench", started())
    for request, gpu, slot in ((1, "gpu0", 3), (2, "gpu1", 3), (3, "gpu1", 0)):
        serve(story, request, request, slot=slot, gpu=gpu)
    events = trace(story.records())
    check(events)
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    lanes = {named[pid, tid]: tid for pid, tid in named if pid == SLOTS}
    assert lanes == {"gpu0 slot 3": 4, "gpu1 slot 0": 5, "gpu1 slot 3": 8}
    held = {(event["tid"], event["args"]["request"]) for event in slices(events, SLOTS)}
    assert held == {(4, 1), (8, 2), (5, 3)}


def test_lanes_and_queues_are_counters() -> None:
    story = Story().at(0, "bench", started())
    story.at(5, "bench", schema.LinkMeasured("gpu0.cnic0", 2, 100 * MS, 9, 1, 0, 155_000_000_000, 400_000_000_000))
    story.at(6, "gpu0", schema.BatchChanged(3, 1, 2, 70, 100))
    counters = {event["name"]: event for event in trace(story.records()) if event["ph"] == "C"}
    assert counters["gpu0.cnic0 VL2"]["args"] == {"Gbit/s": 155.0}
    assert counters["gpu0.cnic0 VL2"]["pid"] == LINKS
    assert counters["gpu0 requests"]["args"] == {"running": 3, "paused": 1, "pending": 2}
    assert counters["gpu0 KV blocks"]["args"] == {"used": 30, "free": 70}


def test_the_same_run_gives_the_same_bytes() -> None:
    records = small_run()
    assert export_perfetto({"a": timeline(records)}) == export_perfetto({"a": timeline(list(records))})


def test_trials_stand_apart() -> None:
    one = timeline(small_run(requests=1))
    events = json.loads(export_perfetto({"blink": one, "vllm": one}))["traceEvents"]
    check(events)
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert processes[0] == "blink: requests"
    assert processes[5] == "vllm: requests"
    assert len({event["pid"] for event in events}) == 10
