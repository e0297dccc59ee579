"""Two queue pairs back to back on a fake wire: what h11 and aioquic test their protocols with."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from testbed.machine import Completion, Received, RemoteAddress, Verb
from testbed.network.connection import Connection, ConnectionSettings
from testbed.network.memory_region import Access, MemoryRegion, PlainMemory, RegionTable
from testbed.network.queue_pair import QueuePair

ADDRESS = 0x10_0000
KEY = 0xABCD
MEMORY_BYTES = 1 << 18


class Pair:
    """Queue pairs "a" and "b" and a wire that delays by `delay` and does to each datagram what `damage` says."""

    def __init__(self, settings: ConnectionSettings, psn: tuple[int, int], access: Access, receives: int) -> None:
        self.memory = {name: PlainMemory(MEMORY_BYTES) for name in "ab"}
        numbers, addresses = {"a": 0x11, "b": 0x22}, {"a": "10.61.0.1", "b": "10.61.0.2"}
        psns = {"a": psn[0], "b": psn[1]}
        self.ends: dict[str, QueuePair] = {}
        for name, peer in (("a", "b"), ("b", "a")):
            connection = Connection(
                peer, numbers[name], numbers[peer], addresses[name], addresses[peer], psns[name], psns[peer],
            )  # fmt: skip
            region = MemoryRegion(KEY, ADDRESS, MEMORY_BYTES, access, self.memory[name], name=f"{name}.memory")
            self.ends[name] = QueuePair(connection, RegionTable([region]), settings)
            self.ends[name].connect()
            for _ in range(receives):
                self.ends[name].post_receive(MEMORY_BYTES)
        self.now = 0
        self.delay = 1_000
        self.damage: Callable[[str, bytes], list[tuple[int, bytes]]] = lambda _to, datagram: [(0, datagram)]
        """From receiver and datagram to the copies that arrive, each with an extra delay."""
        self.log: list[tuple[str, bytes]] = []
        self.completions: dict[str, list[Completion]] = {"a": [], "b": []}
        self.received: dict[str, list[Received]] = {"a": [], "b": []}
        self._flying: list[tuple[int, int, str, bytes]] = []
        self._order = count()

    @staticmethod
    def remote(offset: int = 0) -> RemoteAddress:
        return RemoteAddress(ADDRESS + offset, KEY)

    def post(self, verb: Verb, name: str = "a") -> None:
        self.ends[name].post(verb)

    def run(self, limit: int = 100_000) -> None:
        """Until both ends are quiet; fails after `limit` steps, since nothing may hang."""
        for _ in range(limit):
            self._send()
            moments = [moment for end in self.ends.values() if (moment := end.deadline()) is not None]
            if self._flying:
                moments.append(self._flying[0][0])
            if not moments:
                return
            self.now = max(self.now, min(moments))
            while self._flying and self._flying[0][0] <= self.now:
                _, _, name, datagram = heapq.heappop(self._flying)
                self.ends[name].receive_packet(self.now, datagram)
            for end in self.ends.values():
                if (moment := end.deadline()) is not None and moment <= self.now:
                    end.wake(self.now)
            self._collect()
        raise AssertionError(f"not quiet after {limit} steps")

    def _send(self) -> None:
        self._collect()
        for name, peer in (("a", "b"), ("b", "a")):
            for datagram in self.ends[name].packets_to_send(self.now):
                self.log.append((peer, datagram))
                for extra, copy in self.damage(peer, datagram):
                    heapq.heappush(self._flying, (self.now + self.delay + extra, next(self._order), peer, copy))

    def _collect(self) -> None:
        for name, end in self.ends.items():
            self.completions[name] += end.poll_completions()
            self.received[name] += end.poll_received()


@pytest.fixture
def make_pair() -> Callable[..., Pair]:
    def make(
        *, psn: tuple[int, int] = (100, 200), access: Access = Access.REMOTE, receives: int = 0, **settings: int
    ) -> Pair:
        return Pair(ConnectionSettings(**settings), psn, access, receives)

    return make


@pytest.fixture
def rough_wire() -> Callable[..., Callable[[str, bytes], list[tuple[int, bytes]]]]:
    """A wire that loses, doubles, delays and damages datagrams with the given chances, by a seed."""

    def make(seed: int, loss: float, duplication: float, reordering: float, corruption: float):  # type: ignore[no-untyped-def]
        random = Random(seed)

        def damage(_to: str, datagram: bytes) -> list[tuple[int, bytes]]:
            copies = []
            for _ in range(1 + (random.random() < duplication)):
                if random.random() < loss:
                    continue
                if random.random() < corruption:
                    broken = bytearray(datagram)
                    broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
                    datagram = bytes(broken)
                copies.append((random.randrange(20_000) if random.random() < reordering else 0, datagram))
            return copies

        return damage

    return make
