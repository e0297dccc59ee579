from __future__ import annotations

from hypothesis import given, settings

from testbed.events import schema
from testbed.events.log import Record
from testbed.metrics.fold import Folding
from testbed.metrics.requests import CountFold, Exchange, ExchangeFold, RequestCounts, ServedFold
from tests.testbed.metrics.stories import MS, Story, ask, nonsense, small_run


def exchanges(records: list[Record]) -> tuple[Exchange, ...]:
    found: tuple[Exchange, ...] = Folding({"x": ExchangeFold()}).take_all(records).result("x")
    return found


def counts(records: list[Record]) -> RequestCounts:
    found: RequestCounts = Folding({"x": CountFold()}).take_all(records).result("x")
    return found


def test_raw_times_of_every_chunk_are_kept() -> None:
    (one,) = exchanges(ask(Story(), "q1", 3, [10, 16, 22], lag_ms=2).records())
    assert (one.scheduled, one.sent, one.lag) == (1 * MS, 3 * MS, 2 * MS)
    assert one.times == [10 * MS, 16 * MS, 22 * MS]
    assert (one.counts, one.received, one.tokens, one.completed) == ([1, 1, 1], 3, 3, True)


def test_a_name_that_is_used_again_is_another_exchange() -> None:
    story = ask(ask(Story(), "q1", 0, [10]), "q1", 50, [60, 70])
    assert [one.received for one in exchanges(story.records())] == [1, 2]


def test_sent_is_completed_and_failed_and_in_flight() -> None:
    story = ask(Story(), "a", 0, [10])
    story.at(0, "client0", *(schema.RequestSent(name, 0, 0, 1, 1) for name in "bc"))
    story.at(5, "client0", schema.RequestFailed("b", ""))
    found = counts(story.records())
    assert (found.sent, found.completed, found.failed, found.in_flight, found.faults) == (3, 1, 1, 1, ())


def test_a_failure_without_words_is_still_a_failure() -> None:
    story = Story().at(0, "client0", schema.RequestSent("b", 0, 0, 1, 1), schema.RequestFailed("b", ""))
    (one,) = exchanges(story.records())
    assert one.failed
    assert not one.completed


def test_usage_that_differs_from_the_tokens_received_is_named() -> None:
    found = counts(ask(Story(), "q1", 0, [10, 20], usage=5).records())
    assert found.faults == ("q1: usage says 5 tokens, 2 were received",)


def test_events_of_a_request_that_was_never_sent_are_counted() -> None:
    story = Story().at(1, "client0", schema.TokenReceived("ghost", 0), schema.RequestFinished("ghost", 1, "stop"))
    assert counts(story.records()).faults == ("2 events of requests that were never sent",)


def test_the_first_end_counts() -> None:
    story = ask(Story(), "q1", 0, [10]).at(11, "client0", schema.RequestFailed("q1", "reset"))
    found = counts(story.records())
    assert (found.completed, found.failed) == (1, 0)
    assert found.faults


@settings(max_examples=60, deadline=None)
@given(nonsense())
def test_the_identity_holds_whatever_the_log_says(records: list[Record]) -> None:
    found = counts(records)
    assert found.sent == found.completed + found.failed + found.in_flight
    assert found.sent == sum(isinstance(record.event, schema.RequestSent) for record in records)


def test_the_front_ends_view_gives_exchanges_too() -> None:
    records = small_run(requests=2, tokens=3)
    served = Folding({"x": ServedFold()}).take_all(records).result("x")
    assert [(one.name, one.prompt_tokens, one.received, one.completed) for one in served] == [
        ("q1", 10, 3, True),
        ("q2", 10, 3, True),
    ]
    # It arrives 0.5 ms after its sending and streams 0.3 ms before the client has the token.
    assert served[0].times[0] - served[0].sent == 19.7 * MS


def test_refused_and_abandoned_requests_have_failed_at_the_front_end() -> None:
    story = Story().at(
        1, "dpu0",
        schema.RequestArrived(1, "a", 5, 5),
        schema.RequestAbandoned(1),
        schema.RequestRefused(2, "b", "ring_full"),
    )  # fmt: skip
    served = Folding({"x": ServedFold()}).take_all(story.records()).result("x")
    assert [(one.name, one.error) for one in served] == [("a", "abandoned"), ("b", "ring_full")]
