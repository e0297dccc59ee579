from __future__ import annotations

import numpy as np

from testbed.blink.awaited import Awaited
from testbed.blink.request_tracker import TrackedRequest
from testbed.serving.requests import Request
from testbed.serving.tokens import ByteVocabulary


def tracked(number: int) -> TrackedRequest:
    one = TrackedRequest(Request(f"r{number}", "", 50), number, [1], ByteVocabulary())
    one.slot = number
    return one


def words(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.asarray(values, np.uint64)


def test_only_changes_are_news() -> None:
    awaited = Awaited()
    one, two = tracked(0), tracked(1)
    awaited.add(one)
    awaited.add(two)
    first = awaited.news(1, words(11, 12, 99), words(0, 0, 99))
    assert [(news.tracked, news.word) for news in first] == [(one, 11), (two, 12)]
    assert awaited.news(2, words(11, 12, 98), words(0, 0, 98)) == []
    assert awaited.news(3, words(11, 12, 98), words(0, 5, 98)) == [(two, 12, 5)]


def test_a_read_older_than_the_acceptance_is_no_news_and_hides_none() -> None:
    awaited = Awaited()
    one = tracked(0)
    one.since = 4
    awaited.add(one)
    assert awaited.news(4, words(7), words(7)) == []
    assert awaited.news(5, words(7), words(7)) == [(one, 7, 7)]


def test_whoever_stays_is_looked_at_again_after_a_change_of_members() -> None:
    awaited = Awaited()
    one, two = tracked(0), tracked(1)
    awaited.add(one)
    awaited.add(two)
    awaited.news(1, words(5, 6), words(0, 0))
    awaited.remove(one)
    assert awaited.news(2, words(5, 6), words(0, 0)) == [(two, 6, 0)]


def test_backlog_and_unborn_are_kept() -> None:
    awaited = Awaited()
    one = tracked(3)
    awaited.add(one)
    assert awaited.unborn == 1
    one.generated = 2
    awaited.note(one)
    assert list(awaited.backlog) == [3]
    one.reading = True
    awaited.note(one)
    assert not awaited.backlog
    one.reading = False
    awaited.take(one, 1)
    assert (awaited.unborn, list(awaited.backlog)) == (0, [3])
    awaited.remove(one)
    assert (len(awaited), awaited.unborn, dict(awaited.backlog)) == (0, 0, {})


def test_one_that_never_had_a_token_leaves_nobody_unborn() -> None:
    awaited = Awaited()
    one = tracked(3)
    awaited.add(one)
    awaited.remove(one)
    assert awaited.unborn == 0
