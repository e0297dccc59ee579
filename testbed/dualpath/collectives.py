"""Collectives between the engines of a group: dispatch and combine of experts, ReduceScatter and AllGather, as traffic.

One machine an engine, `collective{engine}`. A member WRITEs each peer's part into that peer's region `tokens{engine}`
on the collective service level and posts a letter right behind it on the same queue pair: a reliable connection keeps
their order, so the letter says that the part is there and costs no round trip. Waiting for the WRITE's completion
first would add one to every collective, and a letter by another queue pair could overtake the bytes. A collective is
done at an engine when the parts of all peers have arrived.

Parts hold no tokens of a model: a stamp, which is checked, and zeros. Who needs how many bytes is the engines'
business (DualPath §6.2, A.1; design dualpath 1.8). Knows no layer, no turn, no compute.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from testbed.dualpath.local_messages import Exchange, Exchanged
from testbed.dualpath.mail import sealed
from testbed.dualpath.round_letters import PartArrived
from testbed.dualpath.service_levels import COLLECTIVE
from testbed.events.kv_events import CollectiveFinished
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
    RemoteAddress,
    Send,
    UnexpectedMessage,
    Write,
)
from testbed.network.memory_region import LocalMemory
from testbed.units import KIB, SECOND, Nanoseconds

PATIENCE: Final = 60 * SECOND
"""True time after which a collective that peers do not join has failed. Our choice; NCCL has ten minutes."""
MESSAGE_BYTES: Final = 128 * KIB
"""Longest WRITE; longer parts are cut. Our choice, as the next one: eight engines share a staging area of 16 MiB."""
OUT_BYTES: Final = 512 * KIB
"""Most of one engine in the NIC's hands."""
_STAMP: Final = struct.Struct("<QI")
"""Sequence number and member, at the start of each WRITE that has room for it."""
_TICKETS: Final = 3 << 40
_TICKETS_EACH: Final = 1 << 32


class Member(NamedTuple):
    """One engine of a group."""

    node: str
    engine: int
    interface: str
    """Port of the engine, as cnic3."""
    tokens: RemoteAddress
    """Its region for parts."""
    room: int
    """Bytes of that region."""


def machine_name(engine: int) -> str:
    """Name of an engine's collective machine."""
    return f"collective{engine}"


class Collective:
    """One engine's part in its group's collectives; see the head of this file.

    `members` is the group in the same order everywhere, `place` the own place in it, `memory` the own region for
    parts. `scale`: true bytes for one of an image; `true_bytes`: it is these that the wire carries, so they are what
    packets are counted of.
    """

    def __init__(
        self,
        members: Sequence[Member],
        place: int,
        *,
        memory: LocalMemory,
        path_mtu: int,
        scale: int = 1,
        true_bytes: bool = False,
        patience: Nanoseconds = PATIENCE,
    ) -> None:
        self._members = tuple(members)
        self._place = place
        self._memory = memory
        self._path_mtu = path_mtu
        self._scale = scale
        self._carried = scale if true_bytes else 1
        self._patience = patience
        self._me = self._members[place]
        self.name = machine_name(self._me.engine)
        self._ticket = _TICKETS + self._me.engine * _TICKETS_EACH
        self._now: Exchange | None = None
        self._due: Nanoseconds = 0
        self._last = -1
        """Sequence number of the latest collective."""
        self._arrived: dict[int, set[int]] = {}
        self._waiting: list[tuple[int, int, int]] = []
        """(member, first byte, length) of WRITEs not posted yet, the next one last."""
        self._out: dict[int, tuple[int, int]] = {}
        """Member and bytes of each verb in flight."""
        self._bytes_out = 0

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes an `Exchange`, a peer's `PartArrived`, completions of its own. Raises `UnexpectedMessage`."""
        match message:
            case Exchange() if self._may_begin(message):
                return self._begin(now, message)
            case PartArrived() if 0 <= message.member < len(self._members):
                return self._part(now, message)
            case Completion() if message.ticket in self._out:
                return self._completed(now, message)
            case _:
                raise UnexpectedMessage(self.name, message, "busy" if self._now else "idle")

    def wake(self, now: Nanoseconds) -> Effects:
        """Gives up on peers that have not joined for too long."""
        if self._now is None or now < self._due + self._patience:
            return NOTHING
        missing = [each for each in range(len(self._members)) if each not in self._arrived.get(self._now.sequence, ())]
        names = ", ".join(f"{self._members[each].node}'s engine {self._members[each].engine}" for each in missing)
        return self._fail(f"no part from {names}")

    def deadline(self) -> Nanoseconds | None:
        """When its patience ends."""
        return None if self._now is None else self._due + self._patience

    def _may_begin(self, message: Exchange) -> bool:
        return self._now is None and message.sequence > self._last and len(message.bytes_to_each) == len(self._members)

    def _begin(self, now: Nanoseconds, message: Exchange) -> Effects:
        self._now, self._due, self._last = message, now, message.sequence
        for early in [each for each in self._arrived if each < message.sequence]:
            del self._arrived[early]
        self._arrived.setdefault(message.sequence, set()).add(self._place)
        self._waiting = self._cut(message)
        effects: list[Effect] = []
        self._post(effects)
        self._settle(now, effects)
        return effects

    def _cut(self, message: Exchange) -> list[tuple[int, int, int]]:
        """WRITEs of all peers in turn, beginning behind the own place, so that nobody is sent to by all at once."""
        count = len(self._members)
        order = [(self._place + step) % count for step in range(1, count)]
        rounds = max((-(-message.bytes_to_each[peer] // self._longest(peer)) for peer in order), default=0)
        parts = []
        for turn in range(max(1, rounds)):
            for peer in order:
                longest, total = self._longest(peer), message.bytes_to_each[peer]
                first = turn * longest
                if first < total or turn == 0:
                    parts.append((peer, first, min(longest, total - first)))
        parts.reverse()
        return parts

    def _longest(self, peer: int) -> int:
        return min(MESSAGE_BYTES, self._slot_bytes(peer))

    def _slot_bytes(self, member: int) -> int:
        """Room for one sender's part at a member. Two sets: a peer is never more than one collective ahead."""
        return self._members[member].room // (2 * len(self._members)) & ~7

    def _post(self, effects: list[Effect]) -> None:
        """Posts what may go; behind a peer's last WRITE its letter."""
        assert self._now is not None
        sequence, totals = self._now.sequence, self._now.bytes_to_each
        while self._waiting and (not self._bytes_out or self._bytes_out + self._waiting[-1][2] <= OUT_BYTES):
            peer, first, length = self._waiting.pop()
            if length:
                effects.append(self._write(sequence, peer, length))
            if first + length == totals[peer]:
                effects.append(self._letter(sequence, peer, totals[peer]))

    def _write(self, sequence: int, peer: int, length: int) -> Write:
        member = self._members[peer]
        slot = (sequence % 2 * len(self._members) + self._place) * self._slot_bytes(peer)
        stamp = _STAMP.pack(sequence, self._place)
        if length < len(stamp):  # lands behind the stamp of the part's first WRITE, if there was one
            slot, stamp = slot + len(stamp), b""
        return Write(
            self._next(peer, length),
            f"{member.node}.{member.interface}",
            COLLECTIVE,
            interface=self._me.interface,
            remote=member.tokens.at(slot),
            data=stamp.ljust(length, b"\0"),
        )

    def _letter(self, sequence: int, peer: int, size: int) -> Send:
        member = self._members[peer]
        data = sealed(machine_name(member.engine), PartArrived(sequence, self._place, size))
        where = f"{member.node}.{member.interface}"
        return Send(self._next(peer, 0), where, COLLECTIVE, interface=self._me.interface, data=data)

    def _next(self, peer: int, length: int) -> int:
        self._ticket += 1
        self._out[self._ticket] = (peer, length)
        self._bytes_out += length
        return self._ticket

    def _part(self, now: Nanoseconds, part: PartArrived) -> Effects:
        if part.sequence < self._last or (part.sequence == self._last and self._now is None):
            return NOTHING  # of a collective that was given up
        self._arrived.setdefault(part.sequence, set()).add(part.member)
        if part.bytes >= _STAMP.size:
            slot = (part.sequence % 2 * len(self._members) + part.member) * self._slot_bytes(self._place)
            if _STAMP.unpack_from(self._memory.view, slot) != (part.sequence, part.member):
                member = self._members[part.member]
                return self._fail(f"the part of {member.node}'s engine {member.engine} is not what it sent")
        effects: list[Effect] = []
        self._settle(now, effects)
        return effects

    def _completed(self, now: Nanoseconds, completion: Completion) -> Effects:
        peer, length = self._out.pop(completion.ticket)
        self._bytes_out -= length
        effects: list[Effect] = []
        if completion.status is not CompletionStatus.SUCCESS:
            if self._now is None:  # all of this queue pair end alike; the next collective will say so
                return NOTHING
            status = completion.status.name.lower()
            effects.append(Emit(VerbFailed("write" if length else "send", self._members[peer].node, status)))
            effects += self._fail(f"{self._members[peer].node}: {status}")
        elif self._now is not None:
            self._post(effects)
            self._settle(now, effects)
        return effects

    def _settle(self, now: Nanoseconds, effects: list[Effect]) -> None:
        """Done, if everything has been posted and every part is here."""
        job = self._now
        if job is None or self._waiting or len(self._arrived.get(job.sequence, ())) < len(self._members):
            return
        self._now = None
        del self._arrived[job.sequence]
        sent = [size for peer, size in enumerate(job.bytes_to_each) if peer != self._place]
        event = CollectiveFinished(
            operation=job.operation,
            engine=self._me.engine,
            sequence=job.sequence,
            bytes=sum(sent) * self._scale,
            packets=sum(-(-size * self._carried // self._path_mtu) for size in sent),
            duration=now - self._due,
        )
        effects += (Emit(event), Deliver(job.owner, Exchanged(job.ticket)))

    def _fail(self, reason: str) -> Effects:
        job, self._now, self._waiting = self._now, None, []
        if job is None:
            return NOTHING
        self._arrived.pop(job.sequence, None)
        return (Deliver(job.owner, Exchanged(job.ticket, reason)),)
