"""What every wire promises, as one suite: FlowWire, PacketWire and the soft RNIC run it from their own tests.

A wire joins by a test class that inherits `WireContract` and has a fixture `make_harness`, a function of
`receives` (how many SENDs a node has room for) that returns a `Harness`. Two nodes, "a" and "b", each with one
registered region of `MEMORY_BYTES`, are joined by one reliable connection.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any, Protocol

import pytest

from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    FetchAdd,
    Read,
    Received,
    RemoteAddress,
    Send,
    Verb,
    Write,
)
from testbed.network.memory_region import LocalMemory

MEMORY_BYTES = 1 << 21
SUCCESS = CompletionStatus.SUCCESS
FLUSHED = CompletionStatus.FLUSHED
WORD_LIMIT = 1 << 64


class Harness(Protocol):
    """Two nodes on a wire. `completions` and `received` grow, by node, while it runs."""

    path_mtu: int
    completions: dict[str, list[Completion]]
    received: dict[str, list[Received]]

    def memory(self, node: str) -> LocalMemory:
        """The node's own view of its region."""
        ...

    def remote(self, node: str, offset: int = 0) -> RemoteAddress:
        """How the other node names byte `offset` of that region."""
        ...

    def post(self, node: str, verb: Verb) -> None:
        """`node` posts `verb`; nothing needs to happen before the next run."""
        ...

    def run(self, until: Callable[[], bool]) -> None:
        """Runs until `until()`, which is asked at every step. Fails if that takes longer than a bound."""
        ...

    def settle(self) -> None:
        """Runs until nothing more is under way, or for a short while where that cannot be known."""
        ...

    def cut(self, node: str) -> None:
        """From now on nothing leaves or reaches `node`."""
        ...


MakeHarness = Callable[..., Harness]


def complete(harness: Harness, node: str, count: int) -> list[Completion]:
    """Runs until `node` has `count` completions in all, and then on, to see that there are no more."""
    harness.run(lambda: len(harness.completions[node]) >= count)
    harness.settle()
    assert len(harness.completions[node]) == count, "a ticket was answered twice"
    return harness.completions[node]


def statuses(completions: list[Completion]) -> list[tuple[int, CompletionStatus]]:
    return [(completion.ticket, completion.status) for completion in completions]


def sizes(path_mtu: int) -> list[int]:
    return [0, 1, path_mtu - 1, path_mtu, path_mtu + 1, 65536]


class WireContract:
    """Inherit, and give a fixture `make_harness`."""

    may_lose_naks = False
    """True where a NAK can be lost: its sender is in the error state and silent, so RETRY_EXCEEDED is right too."""

    @pytest.fixture
    def make_harness(self) -> MakeHarness:
        raise NotImplementedError("a subclass says which wire")

    @pytest.mark.parametrize("place", range(6), ids=["0", "1", "mtu-1", "mtu", "mtu+1", "64KiB"])
    def test_write_read_and_send_carry_every_size(self, make_harness: MakeHarness, place: int) -> None:
        harness = make_harness(receives=4)
        size = sizes(harness.path_mtu)[place]
        data = Random(size).randbytes(size)
        harness.post("a", Write(1, "b", remote=harness.remote("b", 24), data=data))
        harness.post("a", Read(2, "b", remote=harness.remote("b", 24), length=size))
        harness.post("a", Send(3, "b", data=data))
        done = complete(harness, "a", 3)
        assert statuses(done) == [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]
        assert done[1].data == data
        assert harness.received["b"] == [Received("a", data)]
        around = bytes(harness.memory("b").view[: size + 48])
        assert around == bytes(24) + data + bytes(24), "bytes beside the message were touched"
        assert not any(harness.memory("a").view[: size + 48])

    @pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 4096, 1 << 20])
    def test_messages_longer_than_a_packet(self, make_harness: MakeHarness, size: int) -> None:
        """Known fault D4: a message longer than the path MTU failed."""
        harness = make_harness()
        data = Random(size).randbytes(size)
        harness.post("a", Write(1, "b", remote=harness.remote("b"), data=data))
        harness.post("a", Read(2, "b", remote=harness.remote("b"), length=size))
        done = complete(harness, "a", 2)
        assert statuses(done) == [(1, SUCCESS), (2, SUCCESS)]
        assert done[1].data == data

    def test_compare_swap_and_fetch_add(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        harness.memory("b").store(64, 5)
        harness.memory("b").store(72, WORD_LIMIT - 1)
        word, other = harness.remote("b", 64), harness.remote("b", 72)
        harness.post("a", CompareSwap(1, "b", remote=word, expected=5, desired=WORD_LIMIT - 2))
        harness.post("a", CompareSwap(2, "b", remote=word, expected=5, desired=7))
        harness.post("a", FetchAdd(3, "b", remote=other, addend=3))
        harness.post("a", FetchAdd(4, "b", remote=other, addend=WORD_LIMIT - 1))
        done = complete(harness, "a", 4)
        assert statuses(done) == [(n, SUCCESS) for n in (1, 2, 3, 4)]
        assert [completion.original for completion in done] == [5, WORD_LIMIT - 2, WORD_LIMIT - 1, 2]
        assert harness.memory("b").load(64) == WORD_LIMIT - 2
        assert harness.memory("b").load(72) == 1

    def test_atomics_lose_nothing_against_the_owner(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        memory, count = harness.memory("b"), 100
        added = 0

        def step() -> bool:
            nonlocal added
            if added < 1000:
                memory.fetch_add(128, 1 << 32)
                added += 1
            return len(harness.completions["a"]) >= count

        for ticket in range(count):
            harness.post("a", FetchAdd(ticket, "b", remote=harness.remote("b", 128), addend=1))
        harness.run(step)
        originals = [completion.original & 0xFFFFFFFF for completion in harness.completions["a"]]
        assert originals == list(range(count))
        assert memory.load(128) == (added << 32) + count

    def test_a_write_is_there_before_the_compare_swap_behind_it(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        memory = harness.memory("b")
        for turn in range(5):
            data = Random(turn).randbytes(3 * harness.path_mtu + 5)

            def flipped(turn: int = turn, data: bytes = data) -> bool:
                if memory.load(0) == turn:
                    return False
                assert memory.view[64 : 64 + len(data)] == data, "the word was seen before the bytes"
                return True

            harness.post("a", Write(2 * turn, "b", remote=harness.remote("b", 64), data=data))
            harness.post(
                "a", CompareSwap(2 * turn + 1, "b", remote=harness.remote("b"), expected=turn, desired=turn + 1)
            )
            harness.run(flipped)
        complete(harness, "a", 10)

    def test_verbs_complete_in_the_order_of_posting(self, make_harness: MakeHarness) -> None:
        harness = make_harness(receives=20)
        random = Random(4)
        expected: list[tuple[int, CompletionStatus]] = []
        for ticket in range(60):
            size = random.choice((0, 8, 300, 5000, 20_000))
            place = harness.remote("b", 8 * random.randrange(1000))
            verbs: list[Verb] = [
                Write(ticket, "b", remote=place, data=bytes(size)),
                Read(ticket, "b", remote=place, length=size),
                FetchAdd(ticket, "b", remote=place, addend=1),
                CompareSwap(ticket, "b", remote=place, expected=0, desired=1),
            ]
            harness.post("a", random.choice(verbs))
            expected.append((ticket, SUCCESS))
        assert statuses(complete(harness, "a", 60)) == expected

    def test_a_read_sees_the_writes_posted_before_it(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        first, second = b"\x01" * 9000, b"\x02" * 100
        harness.post("a", Write(1, "b", remote=harness.remote("b"), data=first))
        harness.post("a", Write(2, "b", remote=harness.remote("b", 50), data=second))
        harness.post("a", Read(3, "b", remote=harness.remote("b"), length=9000))
        done = complete(harness, "a", 3)
        assert done[2].data == first[:50] + second + first[150:]

    def test_a_write_takes_its_bytes_when_posted(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        buffer = bytearray(b"x" * 5000)
        harness.post("a", Write(1, "b", remote=harness.remote("b"), data=memoryview(buffer)))
        buffer[:] = b"y" * 5000
        complete(harness, "a", 1)
        assert harness.memory("b").view[:5000] == b"x" * 5000

    def test_messages_arrive_once_and_in_order(self, make_harness: MakeHarness) -> None:
        harness = make_harness(receives=8)
        random = Random(5)
        texts = [random.randbytes(random.choice((0, 3, 64, 9000))) for _ in range(30)]
        for ticket, text in enumerate(texts):
            harness.post("a", Send(ticket, "b", data=text))
            if ticket % 8 == 7:
                complete(harness, "a", ticket + 1)
        complete(harness, "a", 30)
        harness.run(lambda: len(harness.received["b"]) >= 30)
        assert [message.data for message in harness.received["b"]] == texts
        assert {message.peer for message in harness.received["b"]} == {"a"}

    def test_no_room_for_a_message_ends_in_rnr_retry_exceeded(self, make_harness: MakeHarness) -> None:
        harness = make_harness(receives=0)
        harness.post("a", Send(1, "b", data=b"nobody waits"))
        harness.post("a", Read(2, "b", remote=harness.remote("b"), length=8))
        done = complete(harness, "a", 2)
        assert statuses(done) == [(1, CompletionStatus.RNR_RETRY_EXCEEDED), (2, FLUSHED)]

    @pytest.mark.parametrize(
        ("kind", "fault"),
        [
            *product(
                [Write, Read, CompareSwap, FetchAdd], ["wrong_key", "before", "behind", "across_the_end", "around"]
            ),
            *product([CompareSwap, FetchAdd], ["misaligned"]),
        ],
    )
    def test_a_refused_request_is_named_and_ends_the_connection(
        self, make_harness: MakeHarness, kind: type[Verb], fault: str
    ) -> None:
        harness = make_harness()
        memory = harness.memory("b")
        memory.view[:] = b"\x55" * MEMORY_BYTES
        start = harness.remote("b")
        where = {
            "wrong_key": RemoteAddress(start.address, start.key ^ 1),
            "before": RemoteAddress(start.address - 8, start.key),
            "behind": start.at(MEMORY_BYTES),
            "across_the_end": start.at(MEMORY_BYTES - (0 if kind in (CompareSwap, FetchAdd) else 8)),
            "around": RemoteAddress(WORD_LIMIT - 8, start.key),
            "misaligned": start.at(12),
        }[fault]
        arguments: dict[str, Any] = {
            Write: {"data": b"\xaa" * 16},
            Read: {"length": 16},
            CompareSwap: {"expected": int.from_bytes(b"\x55" * 8), "desired": 1},
            FetchAdd: {"addend": 1},
        }[kind]
        harness.post("a", Read(1, "b", remote=start, length=8))
        harness.post("a", kind(2, "b", remote=where, **arguments))
        harness.post("a", Write(3, "b", remote=start, data=b"too late"))
        harness.post("a", FetchAdd(4, "b", remote=start, addend=1))
        wanted = CompletionStatus.REMOTE_ACCESS_ERROR
        if fault == "misaligned":
            wanted = CompletionStatus.REMOTE_INVALID_REQUEST
        done = statuses(complete(harness, "a", 4))
        allowed = [[(1, SUCCESS), (2, wanted), (3, FLUSHED), (4, FLUSHED)]]
        if self.may_lose_naks:
            silent = CompletionStatus.RETRY_EXCEEDED
            allowed.append([(1, SUCCESS), (2, silent), (3, FLUSHED), (4, FLUSHED)])
            allowed.append([(1, silent), (2, FLUSHED), (3, FLUSHED), (4, FLUSHED)])
        assert done in allowed
        assert memory.view[:] == b"\x55" * MEMORY_BYTES, "a refused request changed memory"
        harness.post("a", Read(5, "b", remote=start, length=8))
        assert statuses(complete(harness, "a", 5))[4] == (5, FLUSHED)

    def test_the_refusing_end_is_flushed_too(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        start = harness.remote("b")
        harness.post("a", Read(1, "b", remote=RemoteAddress(start.address, start.key ^ 1), length=8))
        complete(harness, "a", 1)
        harness.post("b", Read(1, "a", remote=harness.remote("a"), length=8))
        assert statuses(complete(harness, "b", 1)) == [(1, FLUSHED)]

    def test_a_message_of_no_bytes_needs_no_region(self, make_harness: MakeHarness) -> None:
        """IBA C9-88: key and bounds are not checked for a length of 0."""
        harness = make_harness()
        nowhere = RemoteAddress(0, 1)
        harness.post("a", Write(1, "b", remote=nowhere, data=b""))
        harness.post("a", Read(2, "b", remote=nowhere, length=0))
        assert statuses(complete(harness, "a", 2)) == [(1, SUCCESS), (2, SUCCESS)]

    def test_too_long_a_read_is_refused_at_home(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        harness.post("a", Read(1, "b", remote=harness.remote("b"), length=(1 << 31) + 1))
        assert statuses(complete(harness, "a", 1)) == [(1, CompletionStatus.LOCAL_LENGTH_ERROR)]

    def test_a_silent_peer_ends_in_retry_exceeded(self, make_harness: MakeHarness) -> None:
        """Known fault D3: a device that goes away in the middle must end in an error, not in a hang."""
        harness = make_harness()
        harness.post("a", Write(0, "b", remote=harness.remote("b"), data=b"alive"))
        complete(harness, "a", 1)
        harness.cut("b")
        harness.post("a", Write(1, "b", remote=harness.remote("b"), data=bytes(20_000)))
        harness.post("a", Read(2, "b", remote=harness.remote("b"), length=8))
        harness.post("a", FetchAdd(3, "b", remote=harness.remote("b"), addend=1))
        done = complete(harness, "a", 4)
        assert statuses(done)[1:] == [(1, CompletionStatus.RETRY_EXCEEDED), (2, FLUSHED), (3, FLUSHED)]

    def test_both_directions_at_once(self, make_harness: MakeHarness) -> None:
        harness = make_harness(receives=4)
        data = {node: Random(node).randbytes(70_000) for node in "ab"}
        for node, peer in (("a", "b"), ("b", "a")):
            harness.post(node, Write(1, peer, remote=harness.remote(peer), data=data[node]))
            harness.post(node, Read(2, peer, remote=harness.remote(peer), length=70_000))
            harness.post(node, FetchAdd(3, peer, remote=harness.remote(peer, 80_000), addend=1))
            harness.post(node, Send(4, peer, data=b"from " + node.encode()))
        for node, peer in (("a", "b"), ("b", "a")):
            done = complete(harness, node, 4)
            assert statuses(done) == [(ticket, SUCCESS) for ticket in (1, 2, 3, 4)]
            assert done[1].data == data[node]
            assert harness.memory(peer).view[:70_000] == data[node]
            assert harness.received[node] == [Received(peer, b"from " + peer.encode())]

    def test_many_small_verbs_are_answered_once_each(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        random = Random(6)
        model = bytearray(4096)
        wanted: list[bytes | int] = []
        count = 1000
        for ticket in range(count):
            offset = 8 * random.randrange(512)
            place = harness.remote("b", offset)
            match random.randrange(4):
                case 0:
                    data = random.randbytes(8)
                    model[offset : offset + 8] = data
                    harness.post("a", Write(ticket, "b", remote=place, data=data))
                    wanted.append(0)
                case 1:
                    harness.post("a", Read(ticket, "b", remote=place, length=8))
                    wanted.append(0)
                case _:
                    before = int.from_bytes(model[offset : offset + 8], "little")
                    addend = random.randrange(WORD_LIMIT)
                    model[offset : offset + 8] = ((before + addend) % WORD_LIMIT).to_bytes(8, "little")
                    harness.post("a", FetchAdd(ticket, "b", remote=place, addend=addend))
                    wanted.append(before)
        done = complete(harness, "a", count)
        assert statuses(done) == [(ticket, SUCCESS) for ticket in range(count)]
        assert [completion.original for completion in done] == wanted
        assert harness.memory("b").view[:4096] == model
