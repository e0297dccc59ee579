"""The traffic manager: the one machine of a node that moves KV (DualPath §4, A.1; design dualpath 1.8).

Every GPU transfer goes through the CNIC as RDMA WRITE on the KV service level, host-device copies as CNIC loop-back;
storage traffic is READs and WRITEs through the SNIC. Others of the node ask by `Move` and `Pull` and are answered once,
whatever happens. WRITEs that wait at a port when its doorbell is rung share it, and one `submit_time`. With
`copy = "copy_engine"` host-device copies pass the NIC by. A message is cut where it is longer than a staging area
should hold, and what is outstanding is bounded, for each queue pair and for the node, so that letters and collectives
never wait behind KV in a software queue, where no lane helps them.

It knows regions and queue pairs by name, no blocks' contents, no turn and no engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.copy_engine import CopyEngines
from testbed.dualpath.local_messages import TRAFFIC, Move, Moved, Piece, Pull, Pulled
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.read_paths import crossed
from testbed.dualpath.service_levels import KV
from testbed.events.kv_events import TransferFinished
from testbed.events.schema import VerbFailed
from testbed.machine import (
    NOTHING,
    Completion,
    CompletionStatus,
    Deliver,
    Effect,
    Effects,
    Emit,
    Message,
    Read,
    UnexpectedMessage,
    Write,
)
from testbed.network.memory_region import Access, LocalMemory, MemoryRegion, RegionError, RegionTable
from testbed.network.wiring import PlannedRegion
from testbed.units import GBYTE_PER_S, MIB, Nanoseconds

_TICKETS = 2 << 40
"""First ticket of its own; the mail has those before."""


class TrafficLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is in the NIC's hands at once, in bytes of images. Our choice: a soft RNIC's staging area has 16 MiB."""

    message_bytes: int = MIB
    """Longest WRITE or READ; longer moves are cut."""
    pair_bytes: int = 2 * MIB
    """Most of one queue pair; one message always goes."""
    pair_messages: int = 32
    """Most messages of one queue pair."""
    node_bytes: int = 8 * MIB
    """Most of the node; one message always goes."""


class _Job:
    """A move or pull and how far it is."""

    __slots__ = ("began", "failure", "left", "message", "received")

    def __init__(self, message: Move | Pull) -> None:
        self.message = message
        self.left = 0
        """Parts not yet answered, or not yet given up."""
        self.began: Nanoseconds | None = None
        self.failure = ""
        self.received: dict[int, bytes] = {}


class _Part:
    """Bytes `first` to `first + length` of a job: one work request."""

    __slots__ = ("first", "job", "length")

    def __init__(self, job: _Job, first: int, length: int) -> None:
        self.job = job
        self.first = first
        self.length = length


class _Pair:
    """What waits for and what is out on one queue pair."""

    __slots__ = ("bytes_out", "messages_out", "port", "waiting")

    def __init__(self, port: _Port) -> None:
        self.port = port
        self.waiting: deque[_Part] = deque()
        self.bytes_out = 0
        self.messages_out = 0


class _Port:
    """One NIC port: its queue pairs that have something waiting, in turn, and its doorbell."""

    __slots__ = ("pairs", "ring_at", "turn")

    def __init__(self) -> None:
        self.pairs: dict[str, _Pair] = {}
        self.turn: deque[_Pair] = deque()
        self.ring_at: Nanoseconds | None = None


class TrafficManager:
    """See the head of this file.

    `memories` are the node's regions, `regions` the same as the plan has them (a copy engine finds its target there).
    """

    name = TRAFFIC

    def __init__(
        self,
        node: str,
        parameters: DualPathParameters,
        *,
        shape: BlockShape,
        memories: Mapping[str, LocalMemory],
        regions: Iterable[PlannedRegion] = (),
        limits: TrafficLimits | None = None,
    ) -> None:
        self._node = node
        self._shape = shape
        self._memories = memories
        self._regions = _table(regions, memories)
        self._limits = limits or TrafficLimits()
        self._submit_time = parameters.submit_time
        self._batch = parameters.doorbell_batch
        self._engines: CopyEngines | None = None
        if parameters.copy == "copy_engine":
            self._engines = CopyEngines(parameters.copy_engine_time, round(parameters.pcie_gbyte_s * GBYTE_PER_S))
        self._ports: dict[str, _Port] = {}
        self._ticket = _TICKETS
        self._out: dict[int, tuple[_Part, _Pair]] = {}
        self._bytes_out = 0
        self._effects: list[Effect] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a `Move`, a `Pull` or the completion of one of its verbs. Raises `UnexpectedMessage`."""
        match message:
            case Move() if self._engines is not None and message.peer == f"{self._node}.{message.interface}":
                self._copy(now, message, self._engines)
            case Move() | Pull():
                self._queue(now, message)
            case Completion() if message.ticket in self._out:
                self._completed(now, message)
            case _:
                raise UnexpectedMessage(self.name, message)
        return self._take_effects()

    def wake(self, now: Nanoseconds) -> Effects:
        """Rings the doorbells that are due and ends copies."""
        if self._engines is not None:
            self._engines.wake(now)
        self._ring_due(now)
        return self._take_effects()

    def deadline(self) -> Nanoseconds | None:
        """The next doorbell or end of a copy."""
        due = [port.ring_at for port in self._ports.values() if port.ring_at is not None]
        if self._engines is not None and (end := self._engines.deadline()) is not None:
            due.append(end)
        return min(due, default=None)

    # --- to the NIC -------------------------------------------------------------------------------------------------

    def _queue(self, now: Nanoseconds, message: Move | Pull) -> None:
        job = _Job(message)
        size = message.length if isinstance(message, Pull) else _size(message)
        port = self._ports.setdefault(message.interface, _Port())
        pair = port.pairs.get(message.peer)
        if pair is None:
            pair = port.pairs[message.peer] = _Pair(port)
        if not pair.waiting and size:
            port.turn.append(pair)
        step = self._limits.message_bytes
        for first in range(0, size, step):
            pair.waiting.append(_Part(job, first, min(step, size - first)))
            job.left += 1
        if not size:
            self._answer(job)
            return
        self._arm(now, port)
        self._ring_due(now)

    def _arm(self, now: Nanoseconds, port: _Port) -> None:
        """A doorbell takes `submit_time` and is begun as soon as something may go."""
        if port.ring_at is None and any(self._may_go(pair) for pair in port.turn):
            port.ring_at = now + self._submit_time

    def _may_go(self, pair: _Pair) -> bool:
        limits, length = self._limits, pair.waiting[0].length
        if pair.messages_out >= limits.pair_messages:
            return False
        if pair.bytes_out and pair.bytes_out + length > limits.pair_bytes:
            return False
        return not self._bytes_out or self._bytes_out + length <= limits.node_bytes

    def _ring_due(self, now: Nanoseconds) -> None:
        """However late the call is, the next doorbell begins where the last one ended."""
        for interface, port in self._ports.items():
            while port.ring_at is not None and port.ring_at <= now:
                rung, port.ring_at = port.ring_at, None
                self._ring(now, interface, port)
                self._arm(rung, port)

    def _ring(self, now: Nanoseconds, interface: str, port: _Port) -> None:
        """Posts what one doorbell covers, a message of each queue pair in turn."""
        held = 0
        room = self._batch
        while room and held < len(port.turn):
            pair = port.turn[0]
            if not self._may_go(pair):
                port.turn.rotate(-1)
                held += 1
                continue
            held = 0
            room -= 1
            part = pair.waiting.popleft()
            port.turn.rotate(-1)
            if not pair.waiting:
                port.turn.remove(pair)
            self._post(now, interface, pair, part)

    def _post(self, now: Nanoseconds, interface: str, pair: _Pair, part: _Part) -> None:
        self._ticket += 1
        pair.bytes_out += part.length
        pair.messages_out += 1
        self._bytes_out += part.length
        self._out[self._ticket] = (part, pair)
        if part.job.began is None:
            part.job.began = now
        message = part.job.message
        remote = message.remote.at(part.first)
        if isinstance(message, Pull):
            verb: Read | Write = Read(
                self._ticket, message.peer, KV, interface=interface, remote=remote, length=part.length
            )
        else:
            source = message.pieces[0].region if message.pieces else ""
            data = self._gather(message, part)
            verb = Write(self._ticket, message.peer, KV, interface=interface, remote=remote, data=data, source=source)
        self._effects.append(verb)

    def _gather(self, message: Move, part: _Part) -> bytes | memoryview:
        if not message.pieces:
            return memoryview(message.data)[part.first : part.first + part.length]
        views = [
            self._memories[piece.region].view[piece.offset : piece.offset + piece.length]
            for piece in _within(message.pieces, part.first, part.length)
        ]
        return views[0] if len(views) == 1 else b"".join(views)

    # --- from the NIC -----------------------------------------------------------------------------------------------

    def _completed(self, now: Nanoseconds, completion: Completion) -> None:
        part, pair = self._out.pop(completion.ticket)
        pair.bytes_out -= part.length
        pair.messages_out -= 1
        self._bytes_out -= part.length
        job = part.job
        job.left -= 1
        if completion.status is CompletionStatus.SUCCESS:
            if completion.data:
                job.received[part.first] = completion.data
        elif not job.failure:
            job.failure = completion.status.name.lower()
            self._give_up(pair, job)
        if job.left == 0:
            self._answer(job)
        for port in self._ports.values():
            self._arm(now, port)
        self._ring_due(now)

    def _give_up(self, pair: _Pair, job: _Job) -> None:
        """What is not posted of a job that has failed is not tried."""
        waited = bool(pair.waiting)
        left = [part for part in pair.waiting if part.job is not job]
        job.left -= len(pair.waiting) - len(left)
        pair.waiting = deque(left)
        if waited and not left:
            pair.port.turn.remove(pair)
        kind = "read" if isinstance(job.message, Pull) else "write"
        self._effects.append(Emit(VerbFailed(kind, job.message.peer, job.failure)))

    def _answer(self, job: _Job) -> None:
        message = job.message
        if job.began is not None and not job.failure:
            self._finished(message, job.began, crossed(message.hop, *self._ends(message)))
        if isinstance(message, Pull):
            data = b"".join(job.received[first] for first in sorted(job.received)) if not job.failure else b""
            self._effects.append(Deliver(message.owner, Pulled(message.ticket, data, job.failure)))
        else:
            self._effects.append(Deliver(message.owner, Moved(message.ticket, job.failure)))

    # --- the copy engine --------------------------------------------------------------------------------------------

    def _copy(self, now: Nanoseconds, message: Move, engines: CopyEngines) -> None:
        size = _size(message)
        true_bytes = self._shape.true_bytes(size)

        def done(_now: Nanoseconds) -> None:
            failure = ""
            try:
                region = self._regions.find(message.remote.key, message.remote.address, size, Access.LOCAL)
            except RegionError:
                failure = CompletionStatus.LOCAL_PROTECTION_ERROR.name.lower()
                self._effects.append(Emit(VerbFailed("copy", message.peer, failure)))
            else:
                start = message.remote.address - region.address
                region.memory.view[start : start + size] = self._gather(message, _Part(_Job(message), 0, size))
                self._finished(message, began, _past_the_nic(crossed(message.hop, *self._ends(message))))
            self._effects.append(Deliver(message.owner, Moved(message.ticket, failure)))

        began = engines.start(now, message.interface, max(1, len(message.pieces)), true_bytes, done)

    # --- events -----------------------------------------------------------------------------------------------------

    def _ends(self, message: Move | Pull) -> tuple[str, str]:
        own = f"{self._node}.{message.interface}"
        return (message.peer, own) if isinstance(message, Pull) else (own, message.peer)

    def _finished(self, message: Move | Pull, began: Nanoseconds, ways: tuple[str, ...]) -> None:
        layer = message.layer if isinstance(message, Move) else -1
        size = _size(message) if isinstance(message, Move) else message.length
        block = self._shape.layer_image if layer >= 0 else self._shape.full_image
        source, target = self._ends(message)
        event = TransferFinished(
            turn=message.request,
            hop=message.hop,
            layer=layer,
            source=source,
            target=target,
            bytes=self._shape.true_bytes(size),
            blocks=max(1, size // block),
            began=began,
            crossed=ways,
        )
        self._effects.append(Emit(event))

    def _take_effects(self) -> Effects:
        if not self._effects:
            return NOTHING
        effects, self._effects = self._effects, []
        return effects


def _size(message: Move) -> int:
    return sum(piece.length for piece in message.pieces) if message.pieces else len(message.data)


def _past_the_nic(resources: tuple[str, ...]) -> tuple[str, ...]:
    """What a loop-back crosses, with the copy engine in place of the NIC's PCIe link."""
    return tuple(
        resource.replace(".cnic_read", ".copy_engine") for resource in resources if not resource.endswith(".cnic_write")
    )


def _within(pieces: tuple[Piece, ...], first: int, length: int) -> Iterator[Piece]:
    """The bytes `first` to `first + length` of a gather list."""
    at = 0
    for piece in pieces:
        begin, end = max(first, at), min(first + length, at + piece.length)
        if begin < end:
            yield Piece(piece.region, piece.offset + begin - at, end - begin)
        at += piece.length


def _table(regions: Iterable[PlannedRegion], memories: Mapping[str, LocalMemory]) -> RegionTable:
    return RegionTable(
        MemoryRegion(each.key, each.address, each.size, Access.LOCAL, memories[each.name], each.bulk, each.name)
        for each in regions
    )
