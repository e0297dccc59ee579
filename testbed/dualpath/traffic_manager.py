"""The traffic manager: the one machine of a node that moves KV (DualPath §4, A.1; design dualpath 1.8).

Every GPU transfer goes through the CNIC as RDMA WRITE on the KV service level, host-device copies as CNIC loop-back;
storage traffic is READs and WRITEs through the SNIC. Others of the node ask by `Move` and `Pull` and are answered once,
whatever happens. WRITEs that wait at a port when its doorbell is rung share it, and one `submit_time`. With
`copy = "copy_engine"` host-device copies pass the NIC by; with `nic_integrated` they have a doorbell of their own. A
message is cut where it is longer than a staging area should hold, and what is outstanding is bounded, for each queue
pair and for the node, so that letters and collectives never wait behind KV in a software queue, where no lane helps
them.

It knows regions and queue pairs by name, no blocks' contents, no turn and no engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.copy_engine import Copy, CopyEngines
from testbed.dualpath.local_messages import TRAFFIC, Move, Moved, Piece, Pull, Pulled
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.read_paths import crossed, data_path
from testbed.dualpath.service_levels import KV
from testbed.dualpath.transfer_queues import Job, Pair, Part, Port
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


class TrafficManager:
    """See the head of this file.

    `memories` are the node's regions, `regions` the same as the plan has them (a copy engine finds its target there).
    `pcie_on_wire`: the wire has PCIe links and carries a copy engine's bytes; else they take the link's time alone.
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
        pcie_on_wire: bool = False,
    ) -> None:
        self._node = node
        self._shape = shape
        self._memories = memories
        self._regions = _table(regions, memories)
        self._limits = limits or TrafficLimits()
        self._path = data_path(parameters)
        self._submit_time = parameters.submit_time
        self._integrated_submit_time = parameters.integrated_submit_time
        self._batch = parameters.doorbell_batch
        self._engines: CopyEngines | None = None
        self._pcie_on_wire = pcie_on_wire
        if parameters.copy == "copy_engine":
            rate = None if pcie_on_wire else round(parameters.pcie_gbyte_s * GBYTE_PER_S)
            self._engines = CopyEngines(parameters.copy_engine_time, rate)
        self._carried: dict[int, Copy] = {}
        """Copies that the wire carries, by ticket."""
        self._ports: dict[tuple[str, bool], Port] = {}
        """By interface, and whether it is the doorbell of an engine on the NIC."""
        self._ticket = _TICKETS
        self._out: dict[int, tuple[Part, Pair]] = {}
        self._bytes_out = 0
        self._effects: list[Effect] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a `Move`, a `Pull` or the completion of one of its verbs. Raises `UnexpectedMessage`."""
        match message:
            case Move() if self._engines is not None and self._is_copy(message):
                self._copy(now, message, self._engines)
            case Move() | Pull():
                self._queue(now, message)
            case Completion() if message.ticket in self._out:
                self._completed(now, message)
            case Completion() if self._engines is not None and message.ticket in self._carried:
                self._arrived(now, message, self._engines)
            case _:
                raise UnexpectedMessage(self.name, message)
        return self._take_effects()

    def wake(self, now: Nanoseconds) -> Effects:
        """Rings the doorbells that are due and ends copies."""
        if self._engines is not None:
            self._copies_due(now, self._engines)
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
        job = Job(message)
        size = message.length if isinstance(message, Pull) else _size(message)
        port = self._port(message)
        pair = port.pairs.get(message.peer)
        if pair is None:
            pair = port.pairs[message.peer] = Pair(port)
        if not pair.waiting and size:
            port.turn.append(pair)
        step = self._limits.message_bytes
        for first in range(0, size, step):
            pair.waiting.append(Part(job, first, min(step, size - first)))
            job.left += 1
        if not size:
            self._answer(job)
            return
        self._arm(now, port)
        self._ring_due(now)

    def _port(self, message: Move | Pull) -> Port:
        integrated = self._path.copies == "nic_integrated" and self._is_copy(message)
        port = self._ports.get((message.interface, integrated))
        if port is None:
            time = self._integrated_submit_time if integrated else self._submit_time
            port = self._ports[message.interface, integrated] = Port(message.interface, time)
        return port

    def _is_copy(self, message: Move | Pull) -> bool:
        """From a port to itself."""
        return message.peer == f"{self._node}.{message.interface}"

    def _arm(self, now: Nanoseconds, port: Port) -> None:
        """A doorbell takes its port's submit time and is begun as soon as something may go."""
        if port.ring_at is None and any(self._may_go(pair) for pair in port.turn):
            port.ring_at = now + port.submit_time

    def _may_go(self, pair: Pair) -> bool:
        limits, length = self._limits, pair.waiting[0].length
        if pair.messages_out >= limits.pair_messages:
            return False
        if pair.bytes_out and pair.bytes_out + length > limits.pair_bytes:
            return False
        return not self._bytes_out or self._bytes_out + length <= limits.node_bytes

    def _ring_due(self, now: Nanoseconds) -> None:
        """However late the call is, the next doorbell begins where the last one ended."""
        for port in self._ports.values():
            while port.ring_at is not None and port.ring_at <= now:
                rung, port.ring_at = port.ring_at, None
                self._ring(now, port)
                self._arm(rung, port)

    def _ring(self, now: Nanoseconds, port: Port) -> None:
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
            self._post(now, pair, part)

    def _post(self, now: Nanoseconds, pair: Pair, part: Part) -> None:
        self._ticket += 1
        pair.bytes_out += part.length
        pair.messages_out += 1
        self._bytes_out += part.length
        self._out[self._ticket] = (part, pair)
        if part.job.began is None:
            part.job.began = now
        message = part.job.message
        if isinstance(message, Pull):
            remote, ticket = message.remote.at(part.first), self._ticket
            read = Read(ticket, message.peer, KV, interface=message.interface, remote=remote, length=part.length)
            self._effects.append(read)
        else:
            self._effects.append(self._write(message, part.first, part.length))

    def _write(self, message: Move, first: int, length: int) -> Write:
        return Write(
            self._ticket,
            message.peer,
            KV,
            interface=message.interface,
            remote=message.remote.at(first),
            data=self._gather(message, first, length),
            source=message.pieces[0].region if message.pieces else "",
        )

    def _gather(self, message: Move, first: int, length: int) -> bytes | memoryview:
        if not message.pieces:
            return memoryview(message.data)[first : first + length]
        views = [
            self._memories[piece.region].view[piece.offset : piece.offset + piece.length]
            for piece in _within(message.pieces, first, length)
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

    def _give_up(self, pair: Pair, job: Job) -> None:
        """What is not posted of a job that has failed is not tried."""
        waited = bool(pair.waiting)
        left = [part for part in pair.waiting if part.job is not job]
        job.left -= len(pair.waiting) - len(left)
        pair.waiting = deque(left)
        if waited and not left:
            pair.port.turn.remove(pair)
        kind = "read" if isinstance(job.message, Pull) else "write"
        self._effects.append(Emit(VerbFailed(kind, job.message.peer, job.failure)))

    def _answer(self, job: Job) -> None:
        message = job.message
        if job.began is not None and not job.failure:
            self._finished(message, job.began)
        if isinstance(message, Pull):
            data = b"".join(job.received[first] for first in sorted(job.received)) if not job.failure else b""
            self._effects.append(Deliver(message.owner, Pulled(message.ticket, data, job.failure)))
        else:
            self._effects.append(Deliver(message.owner, Moved(message.ticket, job.failure)))

    # --- the copy engine --------------------------------------------------------------------------------------------

    def _copy(self, now: Nanoseconds, message: Move, engines: CopyEngines) -> None:
        size = _size(message)
        engines.start(now, Copy(message.interface, message, max(1, len(message.pieces)), self._shape.true_bytes(size)))

    def _copies_due(self, now: Nanoseconds, engines: CopyEngines) -> None:
        while (found := engines.due(now)) is not None:
            moment, copy = found
            target = self._target(copy.move)
            if target is None:
                failure = CompletionStatus.LOCAL_PROTECTION_ERROR.name.lower()
                self._effects.append(Emit(VerbFailed("copy", copy.move.peer, failure)))
                self._copied(moment, copy, failure, engines)
            elif self._pcie_on_wire:
                self._ticket += 1
                self._carried[self._ticket] = copy
                self._effects.append(self._write(copy.move, 0, len(target)))
            else:
                target[:] = self._gather(copy.move, 0, len(target))
                self._copied(moment, copy, "", engines)

    def _target(self, message: Move) -> memoryview | None:
        """Where a copy goes; None beyond its region, which a wire would not forgive the copies behind it."""
        size = _size(message)
        try:
            region = self._regions.find(message.remote.key, message.remote.address, size, Access.LOCAL)
        except RegionError:
            return None
        start = message.remote.address - region.address
        return region.memory.view[start : start + size]

    def _arrived(self, now: Nanoseconds, completion: Completion, engines: CopyEngines) -> None:
        copy, failure = self._carried.pop(completion.ticket), ""
        if completion.status is not CompletionStatus.SUCCESS:
            failure = completion.status.name.lower()
            self._effects.append(Emit(VerbFailed("copy", copy.move.peer, failure)))
        self._copied(now, copy, failure, engines)

    def _copied(self, now: Nanoseconds, copy: Copy, failure: str, engines: CopyEngines) -> None:
        if not failure:
            self._finished(copy.move, copy.began)
        self._effects.append(Deliver(copy.move.owner, Moved(copy.move.ticket, failure)))
        engines.ended(now, copy)

    # --- events -----------------------------------------------------------------------------------------------------

    def _ends(self, message: Move | Pull) -> tuple[str, str]:
        own = f"{self._node}.{message.interface}"
        return (message.peer, own) if isinstance(message, Pull) else (own, message.peer)

    def _finished(self, message: Move | Pull, began: Nanoseconds) -> None:
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
            crossed=crossed(message.hop, source, target, self._path),
        )
        self._effects.append(Emit(event))

    def _take_effects(self) -> Effects:
        if not self._effects:
            return NOTHING
        effects, self._effects = self._effects, []
        return effects


def _size(message: Move) -> int:
    return sum(piece.length for piece in message.pieces) if message.pieces else len(message.data)


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
