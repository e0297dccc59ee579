"""The rings in shared memory: nothing lost or torn between two processes, no lost wake, hostile counters refused."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.shared_memory import NotSealed, SharedMemory
from emulators.verbs_ring import (
    COMPLETION,
    ENTRY,
    WORK_REQUEST,
    BadCounter,
    BadLayout,
    Queues,
    QueueSizes,
    new_bell_fd,
)

SIZES = QueueSizes(requests=8, completions=16, staging=4096)


def test_an_entry_is_one_cache_line() -> None:
    assert WORK_REQUEST.size == COMPLETION.size == ENTRY == 64


@settings(max_examples=80, deadline=None)
@given(batches=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30))
def test_a_ring_is_a_bounded_queue(batches: list[tuple[int, int]]) -> None:
    queues = Queues.create(SIZES)
    producer, consumer = queues.request_producer(), queues.request_consumer()
    model: list[int] = []
    put = 0
    for more, less in batches:
        for _ in range(more):
            assert producer.room() == SIZES.requests - len(model) or producer.room() >= 1
            if len(model) == SIZES.requests:
                assert producer.room() == 0
                break
            producer.put(1, 2, 0, 3, put, 2**64 - 1, 2**32 - 1, 4, 5, 6, 7)
            model.append(put)
            put += 1
        producer.publish()
        assert consumer.waiting() is bool(model)
        for _ in range(less):
            entry = consumer.take()
            if not model:
                assert entry is None
                break
            assert entry == (1, 2, 0, 3, model.pop(0), 2**64 - 1, 2**32 - 1, 4, 5, 6, 7)
        consumer.release()
    consumer.close()
    queues.staging.release()
    queues.memory.close()


def test_entries_are_not_seen_before_they_are_published() -> None:
    queues = Queues.create(SIZES)
    producer, consumer = queues.completion_producer(), queues.completion_consumer()
    producer.put(1, 0, 0, 7, 1, 2, 3)
    assert not consumer.waiting()
    assert consumer.take() is None
    producer.publish()
    assert consumer.waiting()
    assert consumer.take() == (1, 0, 0, 7, 1, 2, 3)


CONSUMER = """
import os, select, sys
from emulators.verbs_ring import Queues, QueueSizes
sizes = QueueSizes(requests=8, completions=16, staging=4096)
queues = Queues.attach(int(sys.argv[1]), sizes)
requests, answers = queues.request_consumer(), queues.completion_producer()
doorbell, notification = queues.doorbell(int(sys.argv[2])), queues.notification(int(sys.argv[3]))
waits = select.epoll()
waits.register(doorbell.fd, select.EPOLLIN | select.EPOLLET)
expected = 0
while expected < 20_000:
    entry = requests.take()
    if entry is None:
        requests.release()
        answers.publish()
        notification.ring()
        doorbell.arm()
        if not requests.waiting():
            assert waits.poll(20), "a wake was lost"
        doorbell.disarm()
        continue
    assert entry[4] == expected and entry[9] == expected * 7, (entry, expected)
    assert answers.room()
    answers.put(1, 0, 0, 7, expected, entry[9] + 1, 0)
    expected += 1
answers.publish()
notification.ring()
"""


def test_two_processes_that_sleep_lose_neither_an_entry_nor_a_wake() -> None:
    queues = Queues.create(SIZES)
    doorbell_fd, notify_fd = new_bell_fd(), new_bell_fd()
    fds = [queues.memory.fd, doorbell_fd, notify_fd]
    peer = subprocess.Popen([sys.executable, "-c", CONSUMER, *map(str, fds)], pass_fds=fds)
    try:
        requests, answers = queues.request_producer(), queues.completion_consumer()
        doorbell, notification = queues.doorbell(doorbell_fd), queues.notification(notify_fd)
        waits = select.epoll()
        waits.register(notify_fd, select.EPOLLIN | select.EPOLLET)
        posted = answered = 0
        deadline = time.monotonic() + 60
        while answered < 20_000:
            assert time.monotonic() < deadline
            while posted < 20_000 and posted - answered < SIZES.requests and requests.room():
                requests.put(1, 0, 0, 7, posted, 0, 0, 0, 0, posted * 7, 0)
                posted += 1
            requests.publish()
            doorbell.ring()
            notification.arm()
            if not answers.waiting():
                assert waits.poll(20), "a wake was lost"
            while (entry := answers.take()) is not None:
                assert entry[4:6] == (answered, answered * 7 + 1)
                answered += 1
            answers.release()
        assert peer.wait(timeout=20) == 0
    finally:
        peer.kill()
        peer.wait()
        waits.close()
        for fd in (doorbell_fd, notify_fd):
            os.close(fd)


def test_a_bell_rings_once_for_each_arming() -> None:
    queues = Queues.create(SIZES)
    fd = new_bell_fd()
    bell = queues.doorbell(fd)
    bell.ring()
    assert not select.select([fd], [], [], 0)[0], "nobody sleeps, nothing to pay"
    bell.arm()
    bell.ring()
    bell.ring()
    assert os.eventfd_read(fd) == 1
    bell.arm()
    bell.disarm()
    bell.ring()
    assert not select.select([fd], [], [], 0)[0]
    os.close(fd)


@pytest.mark.parametrize("forged", [9, 2**63])
def test_a_hostile_counter_is_refused(forged: int) -> None:
    queues = Queues.create(SIZES)
    consumer = queues.request_consumer()
    queues.memory.store(64, forged)
    with pytest.raises(BadCounter, match="do not fit a ring of 8"):
        consumer.take()
    producer = queues.completion_producer()
    for _ in range(16):
        producer.put(0, 0, 0, 0, 0, 0, 0)
    queues.memory.store(256, forged + 16)
    with pytest.raises(BadCounter, match="do not fit a ring of 16"):
        producer.room()


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (QueueSizes(requests=3), "requests is 3"),
        (QueueSizes(requests=1), "requests is 1"),
        (QueueSizes(completions=1 << 17), "completions is 131072"),
        (QueueSizes(requests=64, completions=32), "32 completions cannot answer 64"),
        (QueueSizes(staging=0), "staging is 0"),
        (QueueSizes(staging=1 << 33), "staging is"),
    ],
)
def test_sizes_out_of_bounds_are_refused_on_both_sides(sizes: QueueSizes, reason: str) -> None:
    with pytest.raises(BadLayout, match=reason):
        Queues.create(sizes)
    memory = SharedMemory.create(8192)
    with pytest.raises(BadLayout, match=reason):
        Queues.attach(os.dup(memory.fd), sizes)
    memory.close()


def test_another_version_or_another_size_is_refused() -> None:
    queues = Queues.create(SIZES)
    with pytest.raises(BadLayout, match="header"):
        Queues.attach(os.dup(queues.memory.fd), QueueSizes(requests=16, completions=16, staging=2048))
    with pytest.raises(NotSealed, match="were announced"):
        Queues.attach(os.dup(queues.memory.fd), QueueSizes(requests=16, completions=16, staging=8192))
    queues.memory.view[0] ^= 0xFF
    with pytest.raises(BadLayout, match="header"):
        Queues.attach(os.dup(queues.memory.fd), SIZES)
