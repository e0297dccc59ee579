from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events import schema
from testbed.events.log import Record
from testbed.events.run_events import NodeReady
from testbed.metrics.fold import Folding
from testbed.metrics.spans import PHASES, RequestSpans, launch_lanes, request_spans, slot_spans, step_table
from testbed.metrics.timeline import Launch, TimelineFold, TimelineState
from tests.testbed.metrics.agentic_stories import agentic_run
from tests.testbed.metrics.stories import MS, Story, ask, nonsense, sensible, serve, small_run, started


def timeline(records: list[Record]) -> TimelineState:
    found: TimelineState = Folding({"t": TimelineFold()}).take_all(records).result("t")
    return found


def rows(records: list[Record]) -> tuple[RequestSpans, ...]:
    return request_spans(timeline(records))


def test_the_phases_of_a_request_are_cut_at_its_events() -> None:
    (row,) = rows(serve(Story(), 1, 100, tokens=3).records())
    assert [phase.what for phase in row.phases] == list(PHASES)
    cuts = [phase.start / MS for phase in row.phases] + [row.end / MS]
    # Sent, arrived, claimed, first token published, last, client has it all.
    assert cuts == [100, 100.5, 101, 120, 132, 132.6]
    assert [(token.what, token.start / MS, token.end / MS) for token in row.tokens] == [
        ("token 1", 120, 126),
        ("token 2", 126, 132),
    ]
    assert (row.name, row.request, row.slot, row.state, row.reason) == ("q1", 1, 1, "done", "length")


def test_a_request_that_runs_still_lasts_until_the_last_event() -> None:
    story = Story().at(0, "bench", started()).at(10, "client0", schema.RequestSent("q1", 0, 0, 1, 1))
    story.at(11, "dpu0", schema.RequestArrived(1, "q1", 1, 1)).at(500, "gpu0", schema.BatchChanged(0, 0, 1, 9, 9))
    (row,) = rows(story.records())
    assert (row.state, row.end, [phase.what for phase in row.phases]) == ("running", 500 * MS, ["sending", "queued"])


def test_a_client_without_a_server_is_drawn_by_what_it_received() -> None:
    (row,) = rows(ask(Story(), "q1", 0, [10, 20, 30]).records())
    assert row.request is None
    assert [phase.what for phase in row.phases] == ["sending", "decode", "delivery"]
    assert row.token_times == (10 * MS, 20 * MS, 30 * MS)


def test_a_server_without_a_client_is_drawn_from_the_arrival() -> None:
    records = [record for record in serve(Story(), 1, 100).records() if record.node != "client0"]
    (row,) = rows(records)
    assert (row.name, row.start, row.state) == ("q1", round(100.5 * MS), "done")


def test_a_pause_lies_inside_decode() -> None:
    story = serve(Story(), 1, 0, tokens=9)
    story.at(30, "gpu0", schema.SlotMoved(1, 1, "decode_processing", "decode_paused", 1))
    story.at(31, "gpu0", schema.SlotMoved(1, 1, "decode_paused", "decode_processing", 1))
    (row,) = rows(story.records())
    assert [(pause.start / MS, pause.end / MS) for pause in row.pauses] == [(30, 31)]


@settings(max_examples=80, deadline=None)
@given(st.one_of(nonsense(), sensible()))
def test_spans_nest_and_never_overlap_whatever_the_log_says(records: list[Record]) -> None:
    for row in rows(records):
        assert row.start <= row.end
        edge = row.start
        for phase in row.phases:
            assert phase.start == edge
            assert phase.start <= phase.end
            edge = phase.end
        if row.phases:
            assert edge == row.end
        decode = next((phase for phase in row.phases if phase.what == "decode"), None)
        edge = None
        for token in row.tokens:
            assert decode is not None
            assert decode.start <= token.start <= token.end <= decode.end
            assert edge is None or token.start == edge
            edge = token.end
        for pause in row.pauses:
            assert decode is not None
            assert decode.start <= pause.start <= pause.end <= decode.end


def test_slots_are_shown_while_they_hold_something() -> None:
    found = slot_spans(timeline(small_run(requests=1, tokens=2)))
    # The DPU's late `prefill_pending` makes no span: the GPU had taken the slot on.
    assert [span.state for span in found] == ["prefill_processing", "decode_processing", "decode_completed"]
    for earlier, later in pairwise(found):
        assert earlier.end == later.start


@settings(max_examples=50, deadline=None)
@given(nonsense())
def test_spans_of_one_slot_follow_each_other(records: list[Record]) -> None:
    last: dict[tuple[str, int], int] = {}
    for span in slot_spans(timeline(records)):
        slot = span.ring, span.slot
        assert last.get(slot, span.start) <= span.start <= span.end
        last[slot] = span.end


@pytest.mark.parametrize("told", [True, False])
def test_slots_of_two_rings_have_spans_of_their_own_and_their_requests_say_which(told: bool) -> None:
    story = Story().at(0, "gpu0", NodeReady("gpu", 1)).at(0, "gpu1", NodeReady("gpu", 2))
    for request, gpu in ((1, "gpu0"), (2, "gpu1")):
        serve(story, request, 10 + request, slot=5, gpu=gpu, told=told)
    found = timeline(story.records())
    assert [(row.name, row.ring, row.slot) for row in request_spans(found)] == [("q1", "gpu0", 5), ("q2", "gpu1", 5)]
    held = [(span.ring, span.slot, span.request, span.state) for span in slot_spans(found)]
    states = ("prefill_processing", "decode_processing", "decode_completed")
    assert held == [(f"gpu{ring}", 5, ring + 1, state) for ring in (0, 1) for state in states]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20))
def test_launches_of_one_lane_never_overlap(intervals: list[tuple[int, int]]) -> None:
    launches = [
        Launch("gpu0", number, "decode", "g", (), 0, False, started=start, done=start + length)
        for number, (start, length) in enumerate(intervals)
    ]
    lanes = launch_lanes(launches)
    assert sorted(one.launch for lane in lanes for one in lane) == list(range(len(launches)))
    for lane in lanes:
        for earlier, later in pairwise(lane):
            assert earlier.done is not None
            assert later.started is not None
            assert earlier.done <= later.started


def test_launches_that_never_ran_are_left_out() -> None:
    assert launch_lanes([Launch("gpu0", 1, "decode", "g", (), 0, False)]) == ()


def test_the_table_of_steps_counts_from_the_sending() -> None:
    (row,) = rows(serve(Story(), 1, 100, tokens=3).records())
    table = step_table(row)
    assert [one.step for one in table] == list(range(1, 14))
    by_step = {one.step: one for one in table}
    assert by_step[1].first == 0.5 * MS
    assert (by_step[10].first, by_step[10].last, by_step[10].count) == (20 * MS, 32 * MS, 3)
    (unserved,) = rows(ask(Story(), "q", 0, [5]).records())
    assert {(one.first, one.count) for one in step_table(unserved)} == {(None, 0)}


def test_an_agents_turn_is_queued_until_its_kv_is_there() -> None:
    (row,) = rows(agentic_run(1, 1))
    assert [(phase.what, phase.start // MS, phase.end // MS) for phase in row.phases] == [
        ("sending", 10, 11),
        ("queued", 11, 17),
        ("prefill", 17, 28),
        ("decode", 28, 48),
        ("delivery", 48, 48),
    ]
    assert row.steps == ()
