from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.blink.request_tracker import TrackedRequest
from testbed.blink.token_reader import Fetch, TokenReader, coalesce
from testbed.serving.requests import Request
from testbed.serving.tokens import ByteVocabulary
from tests.testbed.blink.world import small

LOW, HIGH, OUTAGE = 100, 400, 3_200
PARAMETERS = small(
    poll_interval_min=LOW, poll_interval_max=HIGH, poll_outage_interval=OUTAGE, poll_work_cap=3, measure_interval=1_000
)


def tracked(number: int, *, seen: int = 1, generated: int = 2) -> TrackedRequest:
    one = TrackedRequest(Request(f"r{number}", "", 50), number, [1], ByteVocabulary())
    one.answer_start, one.seen, one.generated = number * 64, seen, generated
    return one


def reader() -> TokenReader:
    return TokenReader(PARAMETERS, PARAMETERS.layout())


def planned(one: TokenReader, backlog: list[TrackedRequest], unborn: int = 0) -> list[int]:
    return [fetch.tracked.number for read in one.plan(backlog, unborn) for fetch in read.parts]


def test_urgent_requests_come_before_all_others() -> None:
    backlog = [*(tracked(number) for number in range(1, 6)), tracked(9, seen=0), tracked(8, seen=0)]
    assert planned(reader(), backlog) == [8, 9, 1]


def test_an_urgent_read_does_not_grow_by_a_neighbour_that_can_wait() -> None:
    """Both lie within the gap of each other, the one that can wait first."""
    near = small(poll_work_cap=3, coalesce_gap_bytes=1 << 20)
    reads = TokenReader(near, near.layout()).plan([tracked(1), tracked(2, seen=0), tracked(3)], 0)
    assert [[fetch.tracked.number for fetch in read.parts] for read in reads] == [[2], [1, 3]]


def test_a_capped_cycle_goes_on_where_the_last_one_stopped() -> None:
    one = reader()
    backlog = [tracked(number) for number in range(1, 8)]
    assert planned(one, backlog) == [1, 2, 3]
    assert planned(one, backlog) == [4, 5, 6]
    assert set(planned(one, backlog)) == {7, 1, 2}


def test_a_fetch_has_all_new_tokens_of_a_request_and_says_whether_it_was_urgent() -> None:
    (read,) = reader().plan([tracked(2, seen=3, generated=7)], 0)
    (fetch,) = read.parts
    assert (fetch.first, fetch.amount, fetch.urgent) == (3, 4, False)
    assert read.length == 16
    assert read.offset == PARAMETERS.layout().answer(2 * 64 + 3)
    ((urgent,),) = [read.parts for read in reader().plan([tracked(2, seen=0)], 0)]
    assert urgent.urgent


@given(
    starts=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 60)), min_size=1, max_size=10), gap=st.integers(0, 200)
)
def test_coalesced_reads_hold_every_fetch_and_nothing_far(starts: list[tuple[int, int]], gap: int) -> None:
    fetches, offset = [], 0
    for amount, distance in starts:
        fetches.append(Fetch(tracked(1), 0, amount, offset, False))
        offset += (amount + distance) * 4
    reads = coalesce(reversed(fetches), gap)
    assert [fetch for read in reads for fetch in read.parts] == fetches
    for read in reads:
        for fetch in read.parts:
            assert read.offset <= fetch.offset
            assert fetch.offset + fetch.amount * 4 <= read.offset + read.length
    for one, other in pairwise(reads):
        assert other.offset - (one.offset + one.length) > gap


def test_polling_starts_one_interval_after_something_is_awaited() -> None:
    one = reader()
    assert one.due is None
    one.start(1_000)
    assert one.due == 1_000 + LOW
    one.posted(1_100)
    assert one.due is None
    one.reading = False
    assert one.due == 1_100 + LOW
    one.stop()
    assert one.due is None


def test_the_interval_grows_to_its_bound_while_nothing_comes_and_shrinks_with_a_find() -> None:
    one = reader()
    grown = []
    for _ in range(6):
        one.plan([], 0)
        grown.append(one.interval)
    assert grown == sorted(grown)
    assert grown[-1] == HIGH
    one.plan([tracked(1)], 0)
    assert one.interval == HIGH // 2
    for _ in range(5):
        one.plan([tracked(1)], 0)
    assert one.interval == LOW


@pytest.mark.parametrize(("backlog", "unborn"), [(0, 1), (5, 0)])
def test_a_missing_first_token_and_leftover_work_keep_the_interval_short(backlog: int, unborn: int) -> None:
    one = reader()
    for _ in range(4):
        one.plan([], 0)
    one.plan([tracked(number) for number in range(1, backlog + 1)], unborn)
    assert one.interval == LOW


def test_a_new_request_quickens_a_slow_poll() -> None:
    one = reader()
    one.start(0)
    for _ in range(6):
        one.plan([], 0)
    assert one.due == HIGH
    one.start(150)
    assert one.due == LOW


def test_an_outage_backs_off_to_its_own_bound_and_recovers() -> None:
    one = reader()
    for moment in range(10):
        one.slow_down(moment)
    assert one.interval == OUTAGE
    assert one.due == 9 + OUTAGE
    one.plan([], 0)
    assert one.interval == HIGH


def test_it_measures_itself() -> None:
    one = reader()
    one.posted(0)
    one.plan([tracked(1)], 0)
    one.posted(500)
    assert one.measured(999, 1) is None
    event = one.measured(1_000, 3)
    assert event is not None
    assert (event.polls, event.metadata_bytes, event.token_reads, event.tracker_refreshes) == (2, 2 * 256, 1, 3)
    again = one.measured(2_000, 4)
    assert again is not None
    assert (again.polls, again.tracker_refreshes) == (0, 1)
