from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events import schema
from testbed.events.log import Record
from testbed.experiment.drawing import GUTTER, TICK_ROOM, WIDTH, Axis, close_up, histogram, whole_run
from testbed.metrics.fold import Folding
from testbed.metrics.spans import request_spans
from testbed.metrics.timeline import TimelineFold, TimelineState
from testbed.units import MILLISECOND, SECOND
from tests.testbed.metrics.stories import MS, Story, ask, nonsense, sensible, serve, small_run, started


def timeline(records: list[Record]) -> TimelineState:
    found: TimelineState = Folding({"t": TimelineFold()}).take_all(records).result("t")
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1e6), max_size=60), st.booleans())
def test_every_value_is_in_a_bar_inside_the_box(values: list[float], has_p99: bool) -> None:
    p99 = max(values) if values and has_p99 else None
    found = histogram(values, p99, p99)
    titles = [int(bar.title.rpartition(": ")[2].replace(",", "")) for bar in found.bars]
    assert sum(titles) == len(values)
    for bar in found.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= found.width
        assert 0 <= bar.y <= bar.y + bar.height <= found.height
    for line in (found.p50, found.p99):
        assert line is None or 0 <= line <= found.width


def test_the_axis_has_round_moments_inside() -> None:
    axis = Axis(130 * MILLISECOND, 2 * SECOND)
    assert [tick.label for tick in axis.ticks()] == [f"{k / 5:.1f} s" for k in range(1, 11)]
    assert all(GUTTER <= tick.x <= WIDTH for tick in axis.ticks())
    assert [tick.label for tick in Axis(0, 9 * MILLISECOND).ticks()][:3] == ["0.000 s", "0.001 s", "0.002 s"]
    assert Axis(0, 100 * SECOND).ticks()[1].label == "10 s"
    assert Axis(5, 5).ticks()


def test_few_tokens_are_ticks_and_many_a_band() -> None:
    few = timeline(small_run(requests=1, tokens=10))
    row = whole_run(few, request_spans(few)).rows[0]
    assert row.ticks.count("M") == 10
    assert row.band is None
    many = timeline(serve(Story().at(0, "bench", started()), 1, 0, tokens=600).records())
    row = whole_run(many, request_spans(many)).rows[0]
    assert row.ticks == ""
    assert row.band is not None
    assert row.band.width / 599 < TICK_ROOM


def test_a_row_shows_waiting_prefill_pauses_and_its_end() -> None:
    story = serve(Story().at(0, "bench", started()), 1, 0, tokens=9)
    story.at(30, "gpu0", schema.SlotMoved(1, 1, "decode_processing", "decode_paused", 1))
    story.at(31, "gpu0", schema.SlotMoved(1, 1, "decode_paused", "decode_processing", 1))
    found = timeline(story.records())
    row = whole_run(found, request_spans(found)).rows[0]
    assert row.queued is not None
    assert row.prefill is not None
    assert row.queued.x + row.queued.width <= row.prefill.x + 1
    assert row.pauses.count("M") == 1
    assert row.end is not None
    assert row.title == "q1: done (length), 9 tokens, first after 20.0 ms"


def test_requests_past_the_limit_are_counted() -> None:
    found = timeline(small_run(requests=5))
    picture = whole_run(found, request_spans(found), most=3)
    assert (len(picture.rows), picture.left_out) == (3, 2)


def test_launches_are_drawn_up_close_by_batch_and_lanes_as_strips() -> None:
    story = Story().at(0, "bench", started())
    for request in range(1, 4):
        serve(story, request, request, tokens=30)
    for t in range(0, 200, 20):
        story.at(t, "bench", schema.LinkMeasured("gpu0.cnic0", 2, 20 * MS, 9, 1, 0, (t + 1) * 10**9, 10**12))
        story.at(t, "gpu0", schema.BatchChanged(t // 20, 0, 0, 1, 1))
    found = timeline(story.records())
    picture = close_up(found, request_spans(found))
    assert picture is not None
    assert len(picture.launches) == 90
    assert [(strip.name, strip.lane) for strip in picture.strips] == [("Batch", -1), ("gpu0.cnic0 VL2", 2)]


def test_without_tokens_there_is_nothing_to_see_up_close() -> None:
    found = timeline(Story().at(0, "client0", schema.RequestSent("q", 0, 0, 1, 1)).records())
    assert close_up(found, request_spans(found)) is None
    assert whole_run(found, request_spans(found)).rows[0].note == "running"


@settings(max_examples=50, deadline=None)
@given(st.one_of(nonsense(), sensible()))
def test_paths_hold_numbers_only_and_everything_stays_inside(records: list[Record]) -> None:
    found = timeline(records)
    rows = request_spans(found)
    for picture in (whole_run(found, rows), close_up(found, rows)):
        if picture is None:
            continue
        for row in picture.rows:
            assert re.fullmatch(r"[MvH0-9. -]*", row.ticks + row.pauses)
            for bar in (row.queued, row.prefill, row.band):
                assert bar is None or (bar.x >= GUTTER and bar.x + bar.width <= WIDTH and bar.width > 0)
        for bar in picture.launches:
            assert bar.width > 0
        for strip in picture.strips:
            assert re.fullmatch(r"[MLZ0-9. -]*", strip.line + strip.area)


def test_of_many_ports_those_nearest_to_their_setting_are_drawn_with_all_their_lanes() -> None:
    story = Story().at(0, "bench", started("wall"))
    for port in range(9):
        for t in (100, 200):
            for lane in (-1, 2):
                rate = 10 * (port + 1)
                story.at(t, "bench", schema.LinkMeasured(f"p{port}", lane, 100 * MS, 9, 1, 0, rate, 1000))
    state = timeline(ask(story, "q", 50, [150, 290]).records())
    picture = whole_run(state, request_spans(state))
    assert [strip.name for strip in picture.strips] == [
        name for port in range(3, 9) for name in (f"p{port}", f"p{port} VL2")
    ]
    assert picture.ports_left_out == 3
