"""Two queue pairs back to back, as h11 and aioquic test their protocols, and plans for simulated wires."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest

from testbed.experiment.plan import FabricPlan, NodePlan, Plan, PortPlan, QueuePairPlan, RegionPlan
from testbed.machine import Completion, Message, Received, RemoteAddress, Verb
from testbed.network.connection import Connection, ConnectionSettings
from testbed.network.lanes import LaneTable
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


REGION_BYTES = 1 << 21
REGION_ADDRESS, REGION_KEY = 0x7F00_0000_0000, 0x77


def star(
    names: str, *, rate: int, lanes: LaneTable | None = None, levels: tuple[int, ...] = (0,), path_mtu: int = 4096
) -> Plan:
    """A plan with a node a letter, all on one switch, and a queue pair for each pair of nodes and service level."""
    address = {name: f"10.61.0.{place + 1}" for place, name in enumerate(names)}
    mac = {name: f"02:00:00:00:00:{place + 1:02x}" for place, name in enumerate(names)}

    def number(name: str, peer: str, level: int) -> int:
        return (names.index(name) + 1) << 16 | names.index(peer) << 8 | level

    nodes = tuple(
        NodePlan(
            name, "gpu", "hardware", 64,
            (PortPlan("cnic0", "compute", address[name], mac[name], rate, rate),),
            tuple(
                QueuePairPlan(
                    peer, "cnic0", number(name, peer, level), number(peer, name, level), address[peer], 1, 1, level
                )
                for peer in names
                for level in levels
                if peer != name
            ),
            (RegionPlan("memory", REGION_BYTES, REGION_ADDRESS, REGION_KEY),),
        )
        for name in names
    )  # fmt: skip
    fabric = FabricPlan("compute", "10.61.0.0/24", 4200, roce=True, lanes=lanes)
    return Plan("run", "abcdef", "simulated", "x", "x", 1, 1.0, 1, path_mtu, (fabric,), nodes, {}, {})


class Driver:
    """Drives a simulated wire and writes down what it tells, with the moment."""

    def __init__(self, wire: Any, memories: dict[tuple[str, str], PlainMemory]) -> None:
        self.wire = wire
        self.memories = memories
        self.now = 0
        self.told: list[tuple[int, str, Message]] = []

    @staticmethod
    def remote(offset: int = 0) -> RemoteAddress:
        return RemoteAddress(REGION_ADDRESS + offset, REGION_KEY)

    def post(self, name: str, verb: Verb) -> None:
        self.wire.post(self.now, name, verb)

    def run(self, until: int = 1 << 62) -> None:
        """Until the wire is quiet or `until` has come."""
        for _ in range(500_000):
            moment = self.wire.deadline()
            if moment is None or moment > until:
                self.now = self.now if moment is None else until
                return
            self.now = moment
            self.told += [(moment, name, message) for name, message in self.wire.wake(moment)]
        raise AssertionError("never quiet")

    def ends(self, name: str) -> dict[int, int]:
        """When each verb of a node was completed."""
        return {m.ticket: t for t, node, m in self.told if node == name and isinstance(m, Completion)}


@pytest.fixture
def make_driver() -> Callable[..., Driver]:
    def make(kind: Any, plan: Plan, **arguments: Any) -> Driver:
        memories = {(node.name, "memory"): PlainMemory(REGION_BYTES) for node in plan.nodes}
        return Driver(kind(plan, memories, **arguments), memories)

    return make


@pytest.fixture
def make_star() -> Callable[..., Plan]:
    return star
