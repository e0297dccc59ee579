from __future__ import annotations

import pytest

from testbed.blink.task_pool import TaskPool
from testbed.machine import Effect, MachineError, Read, RemoteAddress, Verb


def read(ticket: int) -> Verb:
    return Read(ticket, "gpu0", remote=RemoteAddress(0, 1), length=8)


def test_what_exceeds_the_pool_waits_in_order() -> None:
    pool: TaskPool[str] = TaskPool(2)
    out: list[Effect] = []
    for name in "abcd":
        pool.post(read, name, out)
    assert [verb.ticket for verb in out if isinstance(verb, Verb)] == [1, 2]
    assert (len(pool), pool.waiting) == (4, 2)
    more: list[Effect] = []
    assert pool.complete(2, more)[0] == "b"
    assert pool.complete(1, more)[0] == "a"
    assert [verb.ticket for verb in more if isinstance(verb, Verb)] == [3, 4]
    for ticket in (3, 4):
        pool.complete(ticket, more)
    assert (len(pool), pool.waiting) == (0, 0)
    pool.post(read, "e", more)
    assert isinstance(more[-1], Verb)


def test_an_unknown_ticket_is_our_fault() -> None:
    pool: TaskPool[str] = TaskPool(2)
    with pytest.raises(MachineError):
        pool.complete(1, [])


def test_there_are_never_more_in_flight_than_the_pool_is_large() -> None:
    pool: TaskPool[int] = TaskPool(2)
    flying: list[int] = []
    for number in range(20):
        out: list[Effect] = []
        pool.post(read, number, out)
        if number % 3 == 2:
            pool.complete(flying.pop(0), out)
        flying += [verb.ticket for verb in out if isinstance(verb, Verb)]
        assert len(flying) <= 2
        assert len(flying) + pool.waiting == len(pool)
    assert pool.waiting
