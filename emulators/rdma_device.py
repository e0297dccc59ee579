"""One RDMA device, opened by pyverbs for one software: its port and GID row checked, one completion queue, queue pairs.

Sleeping: pyverbs gives out no descriptor of a completion channel, and its `get_cq_event` blocks with the interpreter
lock held, so a thread that waits there would stop the node. But the kernel names the descriptor in /proc/self/fd, where
it appears when the channel is made (`_opened`): it is slept on, and an event is fetched only once there is one.

Knows no verb and no peer's region; what an attribute or a status means stands in `emulators.rdma_attributes`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from emulators.rdma_attributes import Ends, Step, gid_fault, steps
from emulators.rdma_library import Library
from emulators.shared_memory import SharedMemory
from emulators.verbs import VerbsError
from testbed.experiment.hardware import RealRnic
from testbed.network.connection import ConnectionSettings
from testbed.network.lanes import type_of_service

EVENT_FILE = "anon_inode:[infinibandevent]"
"""What /proc/self/fd says of a completion channel and of a context's asynchronous events (Linux ib_uverbs)."""
REMOTE = ("LOCAL_WRITE", "REMOTE_READ", "REMOTE_WRITE", "REMOTE_ATOMIC")
_HOP_LIMIT = 64
_AT_ONCE = 64
"""Completions taken in one go."""


class RnicUnfit(VerbsError):
    """The device cannot carry this node's verbs, or has refused a step; one line that names it."""

    def __init__(self, rnic: RealRnic, reason: str) -> None:
        self.rnic = rnic
        self.reason = reason
        super().__init__(f"RDMA device {rnic.device}, port {rnic.port}, GID index {rnic.gid_index}: {reason}")


class RdmaDevice:
    """The device, until `close`. What goes wrong in pyverbs is `library.error`, unless a method says otherwise."""

    def __init__(self, library: Library, rnic: RealRnic, settings: ConnectionSettings) -> None:
        self.library = library
        self.rnic = rnic
        self._settings = settings
        self._opened: list[Any] = []
        try:
            self._open()
        except library.error as error:
            self.close()
            raise RnicUnfit(rnic, str(error)) from error
        except BaseException:
            self.close()
            raise

    def register(self, memory: SharedMemory, access: tuple[str, ...] = REMOTE) -> Any:
        """A memory region over all of `memory`. Raises `RnicUnfit`."""
        try:
            mr = self.library.mr.MR(self._pd, memory.size, self._access(access), address=address_of(memory))
        except self.library.error as error:
            raise RnicUnfit(self.rnic, f"{memory.size} bytes cannot be registered: {error}") from error
        self._opened.append(mr)
        return mr

    def make_queue(self, entries: int) -> None:
        """The completion queue of all queue pairs that are made from now on."""
        self.cq = self.library.cq.CQ(self._context, max(1, entries), None, self._channel, 0)
        self._opened.append(self.cq)

    def make_pair(self, depth: int, receives: int) -> Any:
        """A queue pair in INIT, where receives may be posted already."""
        caps = self.library.qp.QPCap(max_send_wr=depth, max_recv_wr=max(1, receives))
        kind = self.library.enums.IBV_QPT_RC
        init = self.library.qp.QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=caps, sq_sig_all=1)
        pair = self.library.qp.QP(self._pd, init)
        self._opened.append(pair)
        self._step(pair, steps(self._settings, Ends(0, 0, 0, self.rnic.port, 1, 1), self._access(REMOTE))[0])
        return pair

    def connect(self, pair: Any, ends: Ends, gid: str, service_level: int) -> None:
        """From INIT to RTS, towards the queue pair `ends.peer_number` at `gid`.

        The kernel looks for the way to that GID here, for about a second at most (rdma_resolve_ip).
        """
        address = self.library.addr
        route = address.GlobalRoute(
            dgid=address.GID(gid), sgid_index=self.rnic.gid_index, hop_limit=_HOP_LIMIT,
            traffic_class=type_of_service(service_level),
        )  # fmt: skip
        way = address.AHAttr(port_num=self.rnic.port, is_global=1, gr=route, sl=service_level)
        _, receiving, sending = steps(self._settings, ends, self._access(REMOTE))
        self._step(pair, receiving, way)
        self._step(pair, sending)

    def poll(self) -> list[Any]:
        """Completions (`WC`), some at a time."""
        found: list[Any] = self.cq.poll(_AT_ONCE)[1]
        return found

    def take_event(self, descriptor: int) -> bool:
        """Fetches the event that made `descriptor` readable. False if it says that the device is gone."""
        if descriptor == self.completions_fd:
            self._channel.get_cq_event(self.cq)
            self.cq.ack_events(1)
            return True
        event, names = self._context.get_async_event(), self.library.enums
        event.ack()
        return event.event_type not in (names.IBV_EVENT_DEVICE_FATAL, names.IBV_EVENT_CQ_ERR)

    def close(self) -> None:
        """Gives everything back, the latest first."""
        while self._opened:
            thing = self._opened.pop()
            try:
                thing.close()
            except self.library.error as error:  # a device that is gone; the kernel frees the rest with the process
                print(f"{self.rnic.device}: {error}", file=sys.stderr)

    # --- inside ---

    def _open(self) -> None:
        library, rnic = self.library, self.rnic
        before = _event_descriptors()
        self._context = library.device.Context(name=rnic.device)
        self._opened.append(self._context)
        self.events_fd = _opened(before, "asynchronous events")
        mtu = self._look_at_port()
        self._look_at_abilities(mtu)
        self._pd = library.pd.PD(self._context)
        self._opened.append(self._pd)
        before = _event_descriptors()
        self._channel = library.cq.CompChannel(self._context)
        self._opened.append(self._channel)
        self.completions_fd = _opened(before, "completions")

    def _look_at_port(self) -> int:
        """Bytes of a packet that the port carries. Raises `RnicUnfit`, at once, also for a wrong GID index (D7)."""
        rnic, names, context = self.rnic, self.library.enums, self._context
        port = context.query_port(rnic.port)
        if port.state != names.IBV_PORT_ACTIVE:
            raise RnicUnfit(rnic, "the port is not active: is its cable in and its interface up?")
        rows = range(port.gid_tbl_len)
        addresses = [str(context.query_gid(rnic.port, row).gid) for row in rows]
        kinds = [context.query_gid_type(rnic.port, row) == names.IBV_GID_TYPE_SYSFS_ROCE_V2 for row in rows]
        if fault := gid_fault(rnic.gid_index, addresses, kinds):
            raise RnicUnfit(rnic, fault)
        self.gid = addresses[rnic.gid_index]
        mtu: int = 128 << port.active_mtu
        if mtu < self._settings.path_mtu:
            raise RnicUnfit(rnic, f"its port carries {mtu} bytes a packet, path_mtu is {self._settings.path_mtu}")
        return mtu

    def _look_at_abilities(self, mtu: int) -> None:
        able, names = self._context.query_device(), self.library.enums
        if able.atomic_caps == names.IBV_ATOMIC_NONE:
            raise RnicUnfit(self.rnic, "it has no atomics, which rings need")
        self.max_cqe, self.max_qp_wr = int(able.max_cqe), int(able.max_qp_wr)
        self.reads_in = min(self._settings.fetch_depth, int(able.max_qp_rd_atom))
        self.reads_out = min(self._settings.fetch_depth, int(able.max_qp_init_rd_atom))
        self.atomic_with_cpu = able.atomic_caps == names.IBV_ATOMIC_GLOB
        among = "itself and the CPU" if self.atomic_with_cpu else "itself, not the CPU"
        self.facts = (f"firmware {able.fw_version}", f"GID {self.gid}", f"packets of up to {mtu} bytes",
                      f"atomic among {among}", "its wire is real: neither paced nor dilated")  # fmt: skip

    def _access(self, names: tuple[str, ...]) -> int:
        return sum(getattr(self.library.enums, f"IBV_ACCESS_{name}") for name in names)

    def _step(self, pair: Any, step: Step, way: Any = None) -> None:
        names, attributes, mask = self.library.enums, self.library.qp.QPAttr(), 0
        attributes.qp_state = getattr(names, step.state)
        for name, value in step.attributes.items():
            setattr(attributes, name, value)
        if way is not None:
            attributes.ah_attr = way
        for name in step.mask:
            mask |= getattr(names, name)
        pair.modify(attributes, mask)


def address_of(memory: SharedMemory) -> int:
    """Where `memory` lies in this process."""
    return int(np.frombuffer(memory.view, np.uint8).ctypes.data)


def _event_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == EVENT_FILE:
                found.add(int(name))
        except OSError:  # the listing's own
            continue
    return found


def _opened(before: set[int], what: str) -> int:
    """The event descriptor that has appeared since `before`. Raises `VerbsError` unless there is exactly one."""
    opened = _event_descriptors() - before
    if len(opened) != 1:
        raise VerbsError(f"the kernel shows {len(opened)} descriptors for an RDMA device's {what}, one was expected")
    return opened.pop()
