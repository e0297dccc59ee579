"""Verbs for a node's software on a real RNIC, by rdma-core's pyverbs: the surface of `emulators.verbs.Verbs`.

Queue pairs are those of the plan under the RNIC's own numbers (`emulators.rdma_ends`), reliable connections by GID.
A node opens, registers its regions, joins its peers, then posts:

    verbs = RdmaVerbs(load(), planned, node, settings)
    memory = verbs.register(region)         for each region
    verbs.join(control)                     says what it has, waits for its peers, queue pairs are RTS

Atomics: operands and results are words in the host's byte order (ibv_post_send(3)). With IBV_ATOMIC_HCA the RNIC is
atomic against itself, not against this node's CPU; `facts` says which it is, and IBV_ATOMIC_NONE is refused.
Work requests are one object that is filled anew: pyverbs 44 frees none of its own (`__dealloc` is misspelt there).
"""

from __future__ import annotations

import select
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from emulators.rdma_attributes import STATUS, Ends
from emulators.rdma_device import RdmaDevice, RnicUnfit, address_of
from emulators.rdma_ends import NodeEnds, PairEnd, RegionEnd, Translation, await_ends, write_ends
from emulators.rdma_library import Library
from emulators.shared_memory import SharedMemory
from emulators.staging import StagingArea
from emulators.verbs import DEFAULT_SIZES, QueueFull, UnknownPeer, VerbsError
from emulators.verbs_ring import QueueSizes
from emulators.verbs_work import WORK
from testbed.experiment.hardware import RealRnic
from testbed.experiment.plan import NodePlan, QueuePairPlan, RegionPlan
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
from testbed.network.connection import ConnectionSettings
from testbed.network.routes import Routes

JOIN_PATIENCE_S = 20.0
_OPCODES: dict[type[Verb], str] = {
    Write: "IBV_WR_RDMA_WRITE", Read: "IBV_WR_RDMA_READ", CompareSwap: "IBV_WR_ATOMIC_CMP_AND_SWP",
    FetchAdd: "IBV_WR_ATOMIC_FETCH_AND_ADD", Send: "IBV_WR_SEND",
}  # fmt: skip
_WORD_BYTES = 8


class _Pair:
    """One queue pair of the device."""

    __slots__ = ("depth", "plan", "posted", "qp", "translation")

    def __init__(self, plan: QueuePairPlan, qp: Any, depth: int) -> None:
        self.plan = plan
        self.qp = qp
        self.depth = depth
        self.posted = 0
        self.translation: Translation | None = None


class RdmaVerbs:
    """One software's use of a real RNIC. Not for several threads.

    `completion_fd` becomes readable when something may be polled, if `arm` was called and said True.
    """

    def __init__(
        self,
        library: Library,
        rnic: RealRnic,
        node: NodePlan,
        settings: ConnectionSettings,
        *,
        sizes: QueueSizes = DEFAULT_SIZES,
        receives: int = 16,
        receive_bytes: int = 4096,
    ) -> None:
        """Opens the device and makes the node's queue pairs, not yet connected. Raises `RnicUnfit`, without waiting."""
        self._node = node
        self._error = library.error
        self._device = device = RdmaDevice(library, rnic, settings)
        self._epoll = select.epoll()
        for descriptor in (device.events_fd, device.completions_fd):
            self._epoll.register(descriptor, select.EPOLLIN)
        self._area = StagingArea(sizes.staging)
        self._memory = SharedMemory.create(sizes.staging, "staging")
        self._staging = self._memory.view
        self._base = address_of(self._memory)
        self._regions: list[RegionEnd] = []
        self._pairs: list[_Pair] = []
        self._routes = Routes(node.queue_pairs)
        self._pair_of: dict[int, _Pair] = {}
        self._number = 0
        self._in_flight: dict[int, tuple[_Pair, Verb, int, int]] = {}
        self._receives: dict[int, tuple[_Pair, Any, int]] = {}
        self._waiting: deque[Verb] = deque()
        self._ready: list[Completion | Received] = []
        self._requested = False
        self.waiting_limit = 4 * sizes.requests
        """How many verbs may wait for a place before `post` raises `QueueFull`."""
        self.lost = False
        """True once the device is gone."""
        try:
            self._open_pairs(sizes.requests, receives, receive_bytes)
        except library.error as error:
            self.close()
            raise RnicUnfit(rnic, str(error)) from error
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> tuple[str, ...]:
        """What could be read of the device, for people."""
        return self._device.facts

    @property
    def completion_fd(self) -> int:
        """Readable when `poll` has something, after `arm`; also when the device is gone."""
        return self._epoll.fileno()

    @property
    def in_flight(self) -> int:
        """Verbs that were posted and are not yet polled."""
        return len(self._in_flight) + len(self._waiting)

    def register(self, region: RegionPlan, *, populate: bool = True) -> SharedMemory:
        """New memory for a region of the plan, which peers may reach once both have joined. Raises `RnicUnfit`."""
        memory = SharedMemory.create(region.size, region.name, populate=populate)
        try:
            mr = self._device.register(memory)
        except BaseException:
            memory.close()
            raise
        self._regions.append(RegionEnd(region.name, region.address, region.key, address_of(memory), mr.rkey))
        return memory

    def announce(self, control: Path) -> None:
        """Tells the peers, by a file in `control`, what this node's queue pairs and regions are called."""
        pairs = tuple(PairEnd(pair.plan.number, pair.qp.qp_num, pair.plan.initial_psn) for pair in self._pairs)
        write_ends(
            control, NodeEnds(self._node.name, self._device.gid, self._device.reads_in, pairs, tuple(self._regions))
        )

    def join(self, control: Path, timeout_s: float = JOIN_PATIENCE_S) -> None:
        """Announces, waits for the peers and connects. Raises `PeersMissing`, `BadEnds`, `RnicUnfit`."""
        self.announce(control)
        stop = control / "stop"
        peers = await_ends(control, self._node.name, (pair.plan.peer for pair in self._pairs), timeout_s, stop.exists)
        for pair in self._pairs:
            self._connect(pair, peers[pair.plan.peer])

    def post(self, verb: Verb, *, more: bool = False) -> None:  # noqa: ARG002  # the emulated NIC's surface
        """Posts one verb; `more` means nothing here, the RNIC is told at once.

        Raises `UnknownPeer` and `QueueFull`; the verb was then not taken. All else ends in its completion.
        """
        if self._routes.number(verb) is None:
            raise UnknownPeer(self._node.name, verb.peer)
        if self.lost:
            self._ready.append(Completion(verb.ticket, CompletionStatus.FLUSHED))
        elif self._waiting or not self._place(verb):
            if len(self._waiting) >= self.waiting_limit:
                raise QueueFull(len(self._waiting))
            self._waiting.append(_snapshot(verb))

    def ring_doorbell(self) -> None:
        """Nothing: each post has rung already."""

    def poll(self) -> list[Completion | Received]:
        """What has completed or arrived since the last call. Never blocks."""
        self._take()
        found, self._ready = self._ready, []
        return found

    def waiting(self) -> bool:
        """True if `poll` has something: for spinning, no system call."""
        if not self._ready:
            self._take()
        return bool(self._ready)

    def arm(self) -> bool:
        """Asks to be woken through `completion_fd`. False if there is something to poll already: do not sleep."""
        self._look(self._epoll.poll(0))
        if not self._requested and not self.lost:
            try:
                self._device.cq.req_notify()
                self._requested = True
            except self._error:
                self._lose()
        # What completed before the request raises no event any more.
        return not self.waiting()

    def sleep(self, timeout_s: float) -> bool:
        """Sleeps until `poll` has something or the device is gone; False after `timeout_s` without."""
        if not self.arm():
            return True
        events = self._epoll.poll(timeout_s)
        self._look(events)
        return bool(events) or self.waiting()

    def close(self) -> None:
        """Lets go of the device. Verbs in flight end unseen; regions' memory stays, but peers reach it no more."""
        if self._epoll.closed:
            return
        self.lost = True
        self._epoll.close()
        self._device.close()
        self._staging = memoryview(b"")
        self._memory.close()

    # --- opening and connecting ---

    def _open_pairs(self, requests: int, receives: int, receive_bytes: int) -> None:
        device, wr, plans = self._device, self._device.library.wr, self._node.queue_pairs
        depth = min(requests, device.max_qp_wr, device.max_cqe // max(1, len(plans)) - receives)
        if depth < 1:
            raise RnicUnfit(device.rnic, f"{device.max_cqe} completions are too few for {len(plans)} queue pairs")
        device.make_queue((depth + receives) * len(plans))
        key = device.register(self._memory, ("LOCAL_WRITE",)).lkey
        self._sge = wr.SGE(self._base, 0, key)
        self._request = wr.SendWR(num_sge=1, sg=[self._sge])
        self._request.sg_list = self._sge
        for plan in plans:
            pair = _Pair(plan, device.make_pair(depth, receives), depth)
            self._pairs.append(pair)
            self._pair_of[plan.number] = pair
            for _ in range(receives if plan.messages else 0):
                self._lend(pair, receive_bytes, key)

    def _lend(self, pair: _Pair, length: int, key: int) -> None:
        wr, offset = self._device.library.wr, self._area.take(length)
        if offset is None:
            raise VerbsError(f"the staging area has no place for the {length} byte receives from {pair.plan.peer}")
        receive = wr.RecvWR(wr_id=self._number, num_sge=1, sg=[wr.SGE(self._base + offset, length, key)])
        pair.qp.post_recv(receive)
        self._receives[self._number] = (pair, receive, offset)
        self._number += 1

    def _connect(self, pair: _Pair, peer: NodeEnds) -> None:
        device, plan = self._device, pair.plan
        end = peer.pair(plan.peer_number)
        if end is None:
            raise VerbsError(f"{peer.node} has made no queue pair {plan.peer_number} for {self._node.name}")
        reads_out = min(device.reads_out, peer.reads_in)
        ends = Ends(end.number, plan.initial_psn, end.psn, device.rnic.port, reads_out, device.reads_in)
        try:
            device.connect(pair.qp, ends, peer.gid, plan.service_level)
        except self._error as error:
            raise RnicUnfit(device.rnic, f"no connection to {peer.node} at GID {peer.gid}: {error}") from error
        pair.translation = Translation(peer)

    # --- posting and polling ---

    def _place(self, verb: Verb) -> bool:
        """Gives a verb to the RNIC; False if there is no room, in its queue or for its bytes."""
        number = self._routes.number(verb)
        if number is None:
            raise UnknownPeer(self._node.name, verb.peer)
        pair = self._pair_of[number]
        if pair.translation is None:
            raise VerbsError(f"{self._node.name} has not joined {verb.peer} yet")
        work = WORK.get(type(verb))
        if work is None:
            raise VerbsError(f"{type(verb).__name__} is no verb that an RNIC knows")
        if pair.posted >= pair.depth:
            return False
        _, address, key, length, operand, swap = work(verb)
        atomic = isinstance(verb, CompareSwap | FetchAdd)
        size = _WORD_BYTES if atomic else length
        if not 0 <= size <= self._area.size:
            self._ready.append(Completion(verb.ticket, CompletionStatus.LOCAL_LENGTH_ERROR))
            return True
        offset = self._area.take(size) if size else 0
        if offset is None:
            return False
        if isinstance(verb, Write | Send):
            self._staging[offset : offset + size] = verb.data
        self._sge.addr, self._sge.length = self._base + offset, size
        request = self._request
        request.num_sge = 1 if size else 0  # to some RNICs an entry of no bytes means 2 GiB
        request.wr_id = self._number
        request.opcode = getattr(self._device.library.enums, _OPCODES[type(verb)])
        if not isinstance(verb, Send):
            address, key = pair.translation.real(RemoteAddress(address, key))
            if atomic:
                request.set_wr_atomic(key, address, operand, swap)
            else:
                request.set_wr_rdma(key, address)
        self._in_flight[self._number] = (pair, verb, offset, size)
        self._number += 1
        pair.posted += 1
        try:
            pair.qp.post_send(request)
        except self._error:  # an RNIC in trouble takes none; then it was never tried
            self._end(self._number - 1, CompletionStatus.FLUSHED)
        return True

    def _take(self) -> None:
        """Moves what the RNIC has completed to `_ready`, and what waited for room to the RNIC."""
        if self.lost:
            return
        try:
            found = self._device.poll()
        except self._error:
            self._lose()
            return
        for entry in found:
            self._answer(entry)
        while found and self._waiting and self._place(self._waiting[0]):
            self._waiting.popleft()

    def _answer(self, entry: Any) -> None:
        if entry.wr_id in self._receives:
            self._receive(entry.wr_id, entry.status, entry.byte_len)
        else:
            self._end(entry.wr_id, STATUS[entry.status])

    def _end(self, number: int, status: CompletionStatus) -> None:
        pair, verb, offset, size = self._in_flight.pop(number)
        pair.posted -= 1
        data, original = b"", 0
        if status is CompletionStatus.SUCCESS and isinstance(verb, Read):
            data = bytes(self._staging[offset : offset + size])
        elif status is CompletionStatus.SUCCESS and isinstance(verb, CompareSwap | FetchAdd):
            original = int.from_bytes(self._staging[offset : offset + _WORD_BYTES], sys.byteorder)
        if size:
            self._area.give_back(offset, size)
        self._ready.append(Completion(verb.ticket, status, data, original))

    def _receive(self, number: int, status: int, length: int) -> None:
        pair, receive, offset = self._receives[number]
        if STATUS[status] is not CompletionStatus.SUCCESS:
            del self._receives[number]  # flushed with its queue pair
            return
        self._ready.append(Received(pair.plan.peer, bytes(self._staging[offset : offset + length])))
        try:
            pair.qp.post_recv(receive)
        except self._error:  # the queue pair has failed in between
            del self._receives[number]

    def _look(self, events: Sequence[tuple[int, int]]) -> None:
        """Fetches the events that made a descriptor readable, so that it is so no longer."""
        for descriptor, _ in events:
            if self.lost:
                return
            try:
                well = self._device.take_event(descriptor)
            except self._error:
                well = False
            if not well:
                self._lose()
            elif descriptor == self._device.completions_fd:
                self._requested = False

    def _lose(self) -> None:
        """The device is gone: what it completed before counts, all else in flight is flushed."""
        self.lost = True
        for descriptor in (self._device.events_fd, self._device.completions_fd):
            self._epoll.unregister(descriptor)
        try:
            while found := self._device.poll():
                for entry in found:
                    self._answer(entry)
        except self._error:
            pass
        self._receives.clear()
        for number in list(self._in_flight):
            self._end(number, CompletionStatus.FLUSHED)
        self._ready += [Completion(verb.ticket, CompletionStatus.FLUSHED) for verb in self._waiting]
        self._waiting.clear()


def _snapshot(verb: Verb) -> Verb:
    """The verb with its data copied: what waits must not change with the caller's buffer."""
    if isinstance(verb, Write) and not isinstance(verb.data, bytes):
        return msgspec.structs.replace(verb, data=bytes(verb.data))
    return verb
