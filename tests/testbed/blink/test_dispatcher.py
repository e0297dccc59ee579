"""Choosing one of several GPUs: evenly, without those that are gone, and every end is counted once."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.blink.dispatcher import AVOIDED, Dispatcher
from testbed.blink.parameters import BlinkParameters
from testbed.blink.share import Share
from testbed.blink.task_pool import TaskPool
from testbed.machine import Deliver, Effect, Message, Read, RemoteAddress, UnexpectedMessage
from testbed.serving.requests import Abandon, Finish, Refused, Request, Submit, Tokens

NAMES = ("front_end.gpu0", "front_end.gpu1", "front_end.gpu2")


def dispatcher(choice: str = "fewest_requests") -> Dispatcher:
    return Dispatcher(BlinkParameters(gpus=3, gpu_choice=choice), NAMES)  # type: ignore[arg-type]


def submit(machine: Dispatcher, name: str, now: int = 0) -> int:
    """Which GPU got it."""
    message = Submit(Request(name, "p", 4))
    (sent,) = machine.receive(now, message)
    assert isinstance(sent, Deliver)
    assert sent.message is message
    return NAMES.index(sent.to)


def last(name: str, reason: str = "length") -> Tokens:
    return Tokens(name, (1,), ("a",), 1, reason)


def test_the_gpu_with_the_fewest_open_requests_is_taken() -> None:
    machine = dispatcher()
    assert [submit(machine, name) for name in "abcd"] == [0, 1, 2, 0]
    machine.receive(1, last("b"))
    assert submit(machine, "e") == 1
    assert machine.load == [2, 1, 1]


def test_by_turns_it_does_not_matter_who_has_finished() -> None:
    machine = dispatcher("round_robin")
    assert submit(machine, "a") == 0
    machine.receive(1, last("a"))
    assert [submit(machine, name) for name in "bcd"] == [1, 2, 0]


@pytest.mark.parametrize("choice", ["fewest_requests", "round_robin"])
def test_a_gpu_that_cannot_be_reached_gets_nothing_for_a_while(choice: str) -> None:
    machine = dispatcher(choice)
    assert submit(machine, "a") == 0
    refusal = Refused("a", "unavailable", "the GPU cannot be reached")
    assert machine.receive(5, refusal) == (Deliver("api", refusal),)
    assert {submit(machine, name, now=6) for name in "bcdef"} == {1, 2}
    for name in "bcdef":
        machine.receive(7, last(name))
    assert 0 in {submit(machine, name, now=5 + AVOIDED) for name in "ghi"}


def test_where_none_can_be_reached_one_is_asked_all_the_same() -> None:
    machine = dispatcher()
    for name in "abc":
        submit(machine, name)
    for name in "abc":
        machine.receive(1, Refused(name, "unavailable", ""))
    assert submit(machine, "d", now=2) == 0


@pytest.mark.parametrize("departure", [Abandon, Finish])
def test_a_departure_goes_where_the_request_went_and_only_once(departure: type[Abandon] | type[Finish]) -> None:
    machine = dispatcher()
    submit(machine, "a")
    gone = departure(submit(machine, "b") and "b")
    assert machine.receive(1, gone) == (Deliver(NAMES[1], gone),)
    assert list(machine.receive(2, gone)) == []
    assert machine.load == [1, 0, 0]


def test_a_name_that_is_used_twice_is_refused_by_whom_has_it() -> None:
    machine = dispatcher()
    assert [submit(machine, "a"), submit(machine, "a")] == [0, 0]
    machine.receive(1, Refused("a", "invalid_request", "a request named a is being served"))
    assert machine.load == [1, 0, 0]
    machine.receive(2, last("a"))
    assert machine.load == [0, 0, 0]


def test_what_does_not_belong_is_refused_and_changes_nothing() -> None:
    machine = dispatcher()
    submit(machine, "a")
    with pytest.raises(UnexpectedMessage):
        machine.receive(1, Message())
    assert machine.load == [1, 0, 0]
    assert machine.deadline() is None
    assert list(machine.wake(3)) == []


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["submit", "end", "refuse", "leave", "token"])), max_size=60)
)
def test_load_is_what_is_open_and_never_uneven_by_more_than_ends_explain(moves: list[tuple[int, str]]) -> None:
    machine = dispatcher()
    where: dict[str, int] = {}
    for now, (number, what) in enumerate(moves):
        name = f"r{number}"
        answers: list[Effect] = []
        if what == "submit" and name not in where:
            least = min(machine.load)
            where[name] = submit(machine, name, now)
            assert machine.load[where[name]] == least + 1
        elif what == "token" and name in where:
            answers = list(machine.receive(now, Tokens(name, (1,), ("a",), 1)))
        elif what == "leave":
            machine.receive(now, Abandon(name))
            where.pop(name, None)
        elif what in ("end", "refuse") and where.pop(name, None) is not None:
            answers = list(machine.receive(now, last(name) if what == "end" else Refused(name, "ring_full", "")))
        assert all(isinstance(effect, Deliver) and effect.to == "api" for effect in answers)
        expected = Counter(where.values())
        assert machine.load == [expected[gpu] for gpu in range(3)]


def test_shares_of_numbers_never_meet() -> None:
    for of in (1, 2, 5):
        shares = [Share(index, of) for index in range(of)]
        numbers = [share.number(each) for share in shares for each in range(1, 20)]
        assert sorted(numbers) == list(range(1, 19 * of + 1))
    assert [Share().number(each) for each in (1, 2, 3)] == [1, 2, 3]


def test_tickets_of_two_pools_of_one_node_are_never_the_same() -> None:
    tickets = count(0)
    for index in range(2):
        pool = TaskPool[int](4, Share(index, 2))
        out: list[Effect] = []
        for _ in range(3):
            pool.post(lambda ticket: Read(ticket, "gpu0", 0, remote=RemoteAddress(0, 0), length=8), next(tickets), out)
        assert [effect.ticket for effect in out if isinstance(effect, Read)] == [1 + index, 3 + index, 5 + index]
