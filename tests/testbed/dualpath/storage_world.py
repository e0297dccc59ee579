"""A whole store in memory for tests: real clients, servers and modelled disks, on a wire that is told what to carry.

Letters keep their order from node to node, verbs theirs on a queue pair; which pair goes next, who dies and when is
the caller's choice. It looks at what servers do and knows which version each read and each write was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from testbed.dualpath.blocks import BlockShape, full_image
from testbed.dualpath.chains import ChainView
from testbed.dualpath.disk import DAMAGED, DiskDone, DiskWrite
from testbed.dualpath.letters import AnyLetter, Envelope
from testbed.dualpath.local_messages import Move, Moved, Pull, Pulled, ReadBlocks, WriteBlocks
from testbed.dualpath.mail import PeerLost, Post
from testbed.dualpath.modelled_disk import ModelledDisk
from testbed.dualpath.storage import StorageServer, staging_bytes
from testbed.dualpath.storage_client import StorageClient
from testbed.machine import Compute, Deliver, Effect, Emit, Event, Message, RemoteAddress
from testbed.network.memory_region import PlainMemory
from testbed.units import MICROSECOND, Nanoseconds

SHAPE = BlockShape(layers=2, tokens=4, token_layer_bytes=8)
BUFFER = "buffer"
_ROOM = 512


class Memory:
    """A node's one region."""

    def __init__(self, number: int, size: int) -> None:
        self.memory = PlainMemory(size)
        self.where = RemoteAddress(number << 32, number)


class Store:
    """Storage nodes storage0…, clients pe0…; client memory holds `_ROOM` blocks."""

    def __init__(
        self,
        nodes: int,
        replicas: int,
        clients: int = 1,
        shape: BlockShape = SHAPE,
        *,
        overhead: Nanoseconds = 0,
        window_bytes: int = 1 << 20,
        rewrites: bool = True,
    ) -> None:
        self.now: Nanoseconds = 0
        self.shape = shape
        self.names = [f"storage{number}" for number in range(nodes)]
        self.dead: set[str] = set()
        self.damaged: set[tuple[str, int]] = set()
        self.events: list[tuple[str, Event]] = []
        self.answers: list[Message] = []
        self.moves: list[Move] = []
        self.read_versions: dict[tuple[str, int], list[int]] = {}
        """By request and block: versions that servers have sent, in order."""
        self.write_versions: dict[tuple[str, int], set[int]] = {}
        self.served: list[tuple[str, int, int]] = []
        """(server, block, version) of every read, at the moment at which it is sent."""
        self._view = ChainView(self.names, replicas)
        self._letters: dict[tuple[str, str], deque[Post]] = {}
        self._verbs: dict[tuple[str, str], deque[Move | Pull]] = {}
        staged = max(staging_bytes(shape, replicas, images=True), 8)
        self.memories = {name: Memory(1 + number, staged) for number, name in enumerate(self.names)}
        self.servers = {
            name: StorageServer(
                name,
                shape,
                nodes=self.names,
                replicas=replicas,
                staging=self.memories[name].memory,
                where=self.memories[name].where,
            )
            for name in self.names
        }
        self.disks = {name: ModelledDisk(shape, bytes_per_s=10**9, latency=10 * MICROSECOND) for name in self.names}
        self.clients: dict[str, StorageClient] = {}
        for number in range(clients):
            name = f"pe{number}"
            self.memories[name] = memory = Memory(100 + number, _ROOM * shape.full_image)
            self.clients[name] = StorageClient(
                name,
                shape,
                nodes=self.names,
                replicas=replicas,
                regions={BUFFER: memory.where},
                memories={BUFFER: memory.memory},
                overhead=overhead,
                window_bytes=window_bytes,
                rewrites=rewrites,
            )

    # --- what engines ask ---

    def write(self, request: str, blocks: Iterable[int], client: str = "pe0", first: int = 0, ticket: int = 0) -> None:
        """A client has blocks kept, whose images are put into its memory from place `first` on."""
        blocks = tuple(blocks)
        size = self.shape.full_image
        offsets = tuple((first + place) * size for place in range(len(blocks)))
        view = self.memories[client].memory.view
        for block, offset in zip(blocks, offsets, strict=True):
            view[offset : offset + size] = full_image(self.shape, block, self.shape.tokens)
        ask = WriteBlocks(
            owner="engine", ticket=ticket, request=request, blocks=blocks, parents=tuple(0 for _ in blocks),
            region=BUFFER, offsets=offsets,
        )  # fmt: skip
        self._carry_out(client, self.clients[client].receive(self.now, ask))

    def read(self, request: str, blocks: Iterable[int], client: str = "pe0", first: int = 0, ticket: int = 0) -> None:
        """A client brings blocks into its memory."""
        blocks = tuple(blocks)
        offsets = tuple((first + place) * self.shape.full_image for place in range(len(blocks)))
        ask = ReadBlocks(
            owner="engine", ticket=ticket, request=request, hop="pe1-2", blocks=blocks, region=BUFFER, offsets=offsets
        )
        self._carry_out(client, self.clients[client].receive(self.now, ask))

    # --- the world ---

    def kill(self, node: str, *, letters_kept: int | None = None) -> None:
        """A storage node dies with its disk; of its letters under way the first `letters_kept` arrive, or all."""
        self.dead.add(node)
        for (source, _), waiting in self._letters.items():
            if source == node and letters_kept is not None:
                while len(waiting) > letters_kept:
                    waiting.pop()

    def steps(self) -> list[tuple[str, str, str]]:
        """All that may happen next: (kind, from, to)."""
        found = [("letter", *pair) for pair, waiting in self._letters.items() if waiting]
        found += [("verb", *pair) for pair, waiting in self._verbs.items() if waiting]
        found += [
            ("disk", name, name)
            for name, disk in self.disks.items()
            if name not in self.dead and disk.deadline() is not None
        ]
        return sorted(found)

    def step(self, choice: tuple[str, str, str]) -> None:
        """Lets one of `steps` happen."""
        kind, source, target = choice
        self.now += 1
        if kind == "letter":
            self._deliver(source, target, self._letters[source, target].popleft())
        elif kind == "verb":
            self._verb(source, target, self._verbs[source, target].popleft())
        else:
            disk = self.disks[source]
            deadline = disk.deadline()
            assert deadline is not None
            for effect in disk.wake(deadline):
                assert isinstance(effect, Deliver)
                self._to_server(source, self._as_found(source, effect.message))

    def settle(self) -> None:
        """Everything happens, in a fixed order, and time passes, until nothing is left to do."""
        for _ in range(100_000):
            if steps := self.steps():
                self.step(steps[0])
            elif not self.pass_time():
                return
        raise AssertionError("the store never comes to rest")

    def settle_without_time(self) -> None:
        """Everything happens that can without a deadline."""
        while steps := self.steps():
            self.step(steps[0])

    def damage(self, node: str, block: int) -> None:
        """The node's disk will find this chunk damaged when it reads it, as a file's checksum does."""
        self.damaged.add((node, block))

    def letter_bytes(self, post: Post) -> int:
        """Size of a letter on the wire."""
        return len(msgspec.msgpack.encode(Envelope(post.to, post.letter)))

    def pass_time(self) -> bool:
        """Time goes to the next deadline of a machine; False if there is none."""
        machines = {**self.clients, **{name: s for name, s in self.servers.items() if name not in self.dead}}
        deadlines = {name: moment for name, machine in machines.items() if (moment := machine.deadline()) is not None}
        if not deadlines:
            return False
        self.now = max(self.now, min(deadlines.values()))
        for name, moment in deadlines.items():
            if moment <= self.now:
                self._carry_out(name, machines[name].wake(self.now))
        return True

    def image(self, block: int) -> bytes:
        """What the block should be."""
        return full_image(self.shape, block, self.shape.tokens)

    def in_memory(self, place: int, client: str = "pe0") -> bytes:
        """What a client has at one place."""
        size = self.shape.full_image
        return bytes(self.memories[client].memory.view[place * size : (place + 1) * size])

    def chain(self, block: int) -> tuple[str, ...]:
        """Nodes of the block's chain that live, head first."""
        return tuple(name for name in self._view.planned(block) if name not in self.dead)

    def seen(self, kind: type[Event]) -> list[Event]:
        """Events of one type."""
        return [event for _, event in self.events if isinstance(event, kind)]

    # --- inside ---

    def _carry_out(self, node: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Emit():
                    self.events.append((node, effect.event))
                case Compute():
                    self.disks[node].submit(self.now, effect.work)
                case Deliver(message=Post() as post):
                    self._letters.setdefault((node, post.peer), deque()).append(post)
                case Deliver(message=(Move() | Pull()) as verb):
                    self._verbs.setdefault((node, verb.peer.split(".")[0]), deque()).append(verb)
                case Deliver():
                    self.answers.append(effect.message)
                case _:
                    raise AssertionError(f"nobody takes {effect}")

    def _deliver(self, source: str, target: str, post: Post) -> None:
        letter: AnyLetter = post.letter
        if target not in self.dead:
            machine = self.clients.get(target) or self.servers[target]
            assert machine.name == post.to
            self._carry_out(target, machine.receive(self.now, letter))
        elif source not in self.dead:
            writer = self.clients.get(source) or self.servers[source]
            assert writer.name == post.writer
            self._carry_out(source, writer.receive(self.now, PeerLost(target, letter)))

    def _verb(self, source: str, target: str, verb: Move | Pull) -> None:
        if source in self.dead:
            return
        failure = "retry_exceeded" if target in self.dead else ""
        memory = self.memories[target]
        at = verb.remote.address - memory.where.address
        assert verb.remote.key == memory.where.key
        assert 0 <= at <= memory.memory.size - self.shape.full_image
        view = memory.memory.view[at : at + self.shape.full_image]
        if isinstance(verb, Pull):
            data = b"" if failure else bytes(view)
            self._to_server(source, Pulled(verb.ticket, data, failure), verb)
            return
        self.moves.append(verb)
        if not failure:
            view[:] = verb.data
        self._to_server(source, Moved(verb.ticket, failure))

    def _as_found(self, node: str, message: Message) -> Message:
        if isinstance(message, DiskDone) and message.data:
            block = int.from_bytes(message.data[:8], "little")
            if (node, block) in self.damaged:
                return DiskDone(message.ticket, failure=f"{DAMAGED}: a bit", time=message.time)
        return message

    def _to_server(self, node: str, message: Message, pull: Pull | None = None) -> None:
        effects = self.servers[node].receive(self.now, message)
        for effect in effects:
            if isinstance(effect, Compute) and isinstance(effect.work, DiskWrite) and pull is not None:
                self.write_versions.setdefault((pull.request, effect.work.block), set()).add(effect.work.version)
            if isinstance(effect, Deliver) and isinstance(effect.message, Move) and isinstance(message, DiskDone):
                self._note_read(node, effect.message, message.version)
        self._carry_out(node, effects)

    def _note_read(self, node: str, move: Move, version: int) -> None:
        block = int.from_bytes(move.data[:8], "little")
        self.read_versions.setdefault((move.request, block), []).append(version)
        self.served.append((node, block, version))
