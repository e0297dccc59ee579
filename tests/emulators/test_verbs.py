"""Software's verbs against a real soft RNIC: full queues, full staging, doorbells, and sleeping without loss."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Iterator

import pytest

from emulators.nic_pair import OWNER, REQUESTER, NicPair, wait_for
from emulators.verbs import QueueFull, UnknownPeer, Verbs, VerbsError
from emulators.verbs_ring import QueueSizes
from testbed.machine import Completion, FetchAdd, Read, Received, Send, Verb, Write

SMALL = QueueSizes(requests=16, completions=32, staging=64 * 1024)


@pytest.fixture(scope="module")
def small() -> Iterator[NicPair]:
    """A pair whose software has 16 places for requests and 64 KiB of staging."""
    with NicPair(sizes=SMALL, receives=2) as pair:
        yield pair


def _stop(pair: NicPair) -> None:
    os.kill(pair.processes[REQUESTER].pid, 19)


def _go_on(pair: NicPair) -> None:
    os.kill(pair.processes[REQUESTER].pid, 18)


def test_more_verbs_than_places_wait_in_order_and_none_is_lost(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    small.memory.store(0, 0)
    _stop(small)
    try:
        for ticket in range(60):
            software.post(FetchAdd(ticket, OWNER, remote=small.remote, addend=1))
        assert software.in_flight == 60
    finally:
        _go_on(small)
    assert wait_for(software, 60) == [Completion(ticket, original=ticket) for ticket in range(60)]
    assert software.in_flight == 0


def test_beyond_the_bound_a_verb_is_not_taken_and_the_others_go_on(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    places = 16 - 2  # two are lent to the peer's SENDs
    small.memory.store(0, 0)
    _stop(small)
    try:
        for ticket in range(places + software.waiting_limit):
            software.post(FetchAdd(ticket, OWNER, remote=small.remote, addend=1))
        with pytest.raises(QueueFull, match=f"{software.waiting_limit} verbs wait"):
            software.post(FetchAdd(999, OWNER, remote=small.remote, addend=1))
    finally:
        _go_on(small)
    done = wait_for(software, places + software.waiting_limit)
    assert [message.original for message in done if isinstance(message, Completion)] == list(range(len(done)))
    assert small.memory.load(0) == len(done)


def test_verbs_wait_for_room_in_the_staging_area(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    blocks = [os.urandom(40_000) for _ in range(9)]
    for ticket, block in enumerate(blocks):
        software.post(Write(ticket, OWNER, remote=small.remote.at(ticket * 40_000), data=block))
    assert wait_for(software, 9) == [Completion(ticket) for ticket in range(9)]
    for ticket in range(9):
        software.post(Read(ticket, OWNER, remote=small.remote.at(ticket * 40_000), length=40_000))
    assert wait_for(software, 9) == [Completion(ticket, data=block) for ticket, block in enumerate(blocks)]


def test_what_waits_is_a_copy(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    data = bytearray(b"first" * 8_000)
    _stop(small)
    try:
        for ticket in range(3):
            software.post(Write(ticket, OWNER, remote=small.remote.at(ticket * 40_000), data=memoryview(data)))
        data[:] = b"later" * 8_000
    finally:
        _go_on(small)
    wait_for(software, 3)
    assert bytes(small.memory.view[:120_000]) == b"first" * 24_000


def test_more_bytes_than_the_staging_area_is_an_error_of_that_verb_alone(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    software.post(Write(1, OWNER, remote=small.remote, data=bytes(64 * 1024 + 1)))
    software.post(Read(2, OWNER, remote=small.remote, length=1 << 40))
    software.post(Read(3, OWNER, remote=small.remote, length=64 * 1024 - 2 * 4096))
    statuses = {message.ticket: message.status.name for message in wait_for(software, 3)}  # type: ignore[union-attr]
    assert statuses == {1: "LOCAL_LENGTH_ERROR", 2: "LOCAL_LENGTH_ERROR", 3: "SUCCESS"}


def test_a_peer_that_the_plan_does_not_know_is_our_fault(small: NicPair) -> None:
    with pytest.raises(UnknownPeer, match="dpu0 has no queue pair to host0"):
        small.verbs[REQUESTER].post(Read(1, "host0", remote=small.remote, length=8))
    assert small.verbs[REQUESTER].poll() == []


def test_what_is_no_verb_is_refused(small: NicPair) -> None:
    with pytest.raises(VerbsError, match="Verb is no verb that a NIC knows"):
        small.verbs[REQUESTER].post(Verb(1, OWNER))


def test_a_level_without_a_queue_pair_of_its_own_takes_the_first(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    software.post(Read(1, OWNER, 3, remote=small.remote, length=8))
    assert [message.status.name for message in wait_for(software)] == ["SUCCESS"]  # type: ignore[union-attr]


def test_verbs_posted_with_more_leave_with_the_doorbell(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    small.memory.store(0, 0)
    for ticket in range(5):
        software.post(FetchAdd(ticket, OWNER, remote=small.remote, addend=1), more=True)
    published = software._queues.memory.load(64)
    assert published == software._requests.tail - 5
    software.ring_doorbell()
    assert wait_for(software, 5) == [Completion(ticket, original=ticket) for ticket in range(5)]


def test_sleeping_and_waking_loses_no_completion(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    for ticket in range(300):
        software.post(Read(ticket, OWNER, remote=small.remote, length=8))
        found: list[Completion | Received] = []
        while not found:
            if software.arm():
                assert select.select([software.completion_fd], (), (), 10)[0], "the wake was lost"
            found = software.poll()
        assert [message.ticket for message in found if isinstance(message, Completion)] == [ticket]
    assert software.arm()
    assert not select.select([software.completion_fd], (), (), 0)[0], "readable with nothing to poll"


def test_a_sleep_without_work_ends_after_its_time_and_the_next_one_is_woken(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    assert not software.sleep(0.01)
    software.post(Read(1, OWNER, remote=small.remote, length=8))
    assert software.sleep(10)
    assert [message.ticket for message in software.poll() if isinstance(message, Completion)] == [1]


def test_a_sleep_with_something_to_poll_returns_at_once(small: NicPair) -> None:
    software = small.verbs[REQUESTER]
    software.post(Read(1, OWNER, remote=small.remote, length=8))
    while not software.waiting():
        pass
    assert software.sleep(0)
    assert len(wait_for(software)) == 1


def test_a_wake_that_came_while_software_polled_wakes_it_once_at_most(small: NicPair) -> None:
    """The ring is edge-triggered and is never read off: what was told before the poll is not told again for ever."""
    software = small.verbs[REQUESTER]
    assert software.arm()
    software.post(Read(1, OWNER, remote=small.remote, length=8))
    assert select.select([software.completion_fd], [], [], 10)[0]
    assert len(wait_for(software)) == 1
    software.sleep(0)
    assert not software.sleep(0.01)
    assert not select.select([software.completion_fd], [], [], 0)[0]


def test_sleeping_software_is_woken_by_the_end_of_its_nic() -> None:
    with NicPair() as pair:
        software = pair.verbs[REQUESTER]
        pair.processes[REQUESTER].kill()
        assert software.sleep(10)
        assert software.lost
        assert not software.sleep(0.01), "the end is told once"


def test_the_completion_descriptor_serves_an_asyncio_loop(small: NicPair) -> None:
    software, owner = small.verbs[REQUESTER], small.verbs[OWNER]

    async def exchange() -> list[Completion | Received]:
        loop = asyncio.get_running_loop()
        found: list[Completion | Received] = []
        enough = asyncio.Event()

        def turn(verbs: Verbs) -> None:
            while True:
                found.extend(verbs.poll())
                if verbs.arm():
                    break
            if len(found) == 140:
                enough.set()

        for verbs in (software, owner):
            loop.add_reader(verbs.completion_fd, turn, verbs)
            turn(verbs)
        for ticket in range(70):
            software.post(Send(ticket, OWNER, data=b"%d" % ticket))
            if ticket % 3 == 0:
                await asyncio.sleep(0)
        await asyncio.wait_for(enough.wait(), 20)
        for verbs in (software, owner):
            loop.remove_reader(verbs.completion_fd)
        return found

    found = asyncio.run(exchange())
    completions = [message for message in found if isinstance(message, Completion)]
    received = [message.data for message in found if isinstance(message, Received)]
    assert completions == [Completion(ticket) for ticket in range(70)]
    assert received == [b"%d" % ticket for ticket in range(70)]


def test_queues_that_are_too_small_for_their_receives_are_refused() -> None:
    with pytest.raises(VerbsError, match="no place for the 4096 byte receives"), NicPair(sizes=SMALL, receives=16):
        pass


def test_closing_twice_is_harmless_and_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with NicPair() as pair:
        pair.verbs[REQUESTER].post(Read(1, OWNER, remote=pair.remote, length=8))
        pair.verbs[REQUESTER].close()
        pair.verbs[REQUESTER].close()
        assert pair.verbs[REQUESTER].lost
    assert len(os.listdir("/proc/self/fd")) == before
