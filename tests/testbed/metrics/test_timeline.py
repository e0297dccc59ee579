from __future__ import annotations

from hypothesis import given, settings

from testbed.events import schema
from testbed.events.log import Record
from testbed.metrics.fold import Folding
from testbed.metrics.timeline import STEP_WORDS, TimelineFold, TimelineState
from tests.testbed.metrics.stories import MS, Story, nonsense, serve, small_run, started


def timeline(records: list[Record]) -> TimelineState:
    found: TimelineState = Folding({"t": TimelineFold()}).take_all(records).result("t")
    return found


def test_every_request_goes_through_the_thirteen_steps_in_order() -> None:
    found = timeline(small_run(requests=3, tokens=4))
    assert set(STEP_WORDS) == set(schema.BLINK_STEPS)
    assert len(found.tracks) == 3
    for track in found.tracks.values():
        assert set(track.steps) == set(range(1, 14))
        once, a_token = range(1, 7), range(7, 14)
        assert {track.steps[step].count for step in once} == {1}
        assert {track.steps[step].count for step in a_token} == {4}
        moments = [track.steps[step].first for step in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13)]
        assert moments == sorted(moments)


def test_the_client_and_the_server_are_tied_by_the_name() -> None:
    found = timeline(small_run(requests=2))
    assert {track.name: track.request for track in found.tracks.values()} == {"q1": 1, "q2": 2}
    assert [one.name for one in found.exchanges.exchanges] == ["q1", "q2"]


def test_a_launch_knows_its_requests_and_when_its_tokens_came() -> None:
    story = Story().at(
        1, "gpu0",
        schema.GraphSelected(7, "decode", "decode-4", (3, 5), 800, True),
        schema.GraphLaunched(7, "decode", "decode-4", "fire_and_forget", 2, 1, 119, 2000),
    ).at(9, "gpu0", schema.TokensSampled(7, (3, 5), (40, 41)))  # fmt: skip
    found = timeline(story.records())
    (launch,) = found.launches
    assert (launch.started, launch.done, launch.requests, launch.fallback) == (1 * MS, 9 * MS, (3, 5), True)
    assert (launch.window, launch.in_window, launch.batch, launch.cost) == (1, 119, 2, 2000)
    assert found.open_launches == {}
    assert set(found.tracks[5].steps) == {7, 8, 9}


def test_a_launch_without_a_selection_is_kept() -> None:
    story = Story().at(1, "gpu0", schema.GraphLaunched(7, "decode", "eager", "host", 2, 0, 1, 9000))
    assert [one.requests for one in timeline(story.records()).launches] == [()]


def test_a_count_that_jumps_publishes_several_tokens_at_once() -> None:
    story = (
        Story()
        .at(1, "gpu0", schema.TokensPublished(1, (3,), (1,)))
        .at(5, "gpu0", schema.TokensPublished(2, (3,), (4,)))
    )
    assert timeline(story.records()).tracks[3].published == [1 * MS, 5 * MS, 5 * MS, 5 * MS]


def test_pauses_begin_and_end_with_the_slots_moves() -> None:
    story = serve(Story().at(0, "bench", started()), 1, 0, tokens=9)
    story.at(30, "gpu0", schema.SlotMoved(1, 1, "decode_processing", "decode_paused", 1))
    story.at(31, "gpu0", schema.SlotMoved(1, 1, "decode_paused", "decode_processing", 1))
    story.at(45, "gpu0", schema.SlotMoved(1, 1, "decode_processing", "decode_paused", 1))
    assert timeline(story.records()).tracks[1].pauses == [(30 * MS, 31 * MS), (45 * MS, None)]


def test_how_a_request_ended_at_the_front_end() -> None:
    story = Story().at(1, "dpu0", schema.RequestArrived(1, "a", 5, 5)).at(2, "dpu0", schema.RequestAbandoned(1))
    story.at(3, "dpu0", schema.RequestRefused(2, "b", "ring_full")).at(4, "dpu0", schema.RequestServed(1, 3, "stop"))
    tracks = timeline(story.records()).tracks
    assert (tracks[1].reason, tracks[1].ended) == ("abandoned", 2 * MS)
    assert (tracks[2].name, tracks[2].reason) == ("b", "ring_full")


def test_counters_are_kept_with_their_times() -> None:
    story = Story().at(4, "gpu0", schema.BatchChanged(3, 1, 2, 70, 100), schema.WindowRelaunched(1, 120, 900))
    story.at(5, "bench", schema.LinkMeasured("p", 2, 100 * MS, 9, 1, 0, 72, 400))
    found = timeline(story.records())
    assert (found.batches[0].t, found.batches[0].running, found.batches[0].kv_blocks_free) == (4 * MS, 3, 70)
    assert (found.relaunches[0].window, found.relaunches[0].gap) == (1, 900)
    assert (found.links[0].lane, found.links[0].rate_bits_per_s) == (2, 72)
    assert found.end == 5 * MS


@settings(max_examples=40, deadline=None)
@given(nonsense())
def test_no_log_breaks_it(records: list[Record]) -> None:
    timeline(records)
