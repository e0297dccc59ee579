"""rdma-core on paper: what Looplane uses of pyverbs, for two queue pairs of one device that is nowhere.

Stands in for a library and a device of others, at the level of work requests: states and masks as ibv_modify_qp(3) asks
for them, keys, bounds and access as IBA 10.6 checks them, errors and flushing as IBA 10.3.1 has them. There are no
packets and no time: `advance` carries out what was posted, a peer that does not answer is given up at once. What would
block or crash a process with the real library (an event that is fetched and is not there, a completion queue that
runs over, a request without its mask) fails the test.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from types import SimpleNamespace
from typing import Any

from emulators.rdma_library import Library

EVENT_FILE = "anon_inode:[eventfd]"
"""What /proc/self/fd says of this library's descriptors."""
ENUMS = SimpleNamespace(
    IBV_QPS_RESET=0, IBV_QPS_INIT=1, IBV_QPS_RTR=2, IBV_QPS_RTS=3, IBV_QPS_ERR=6, IBV_QPT_RC=2, IBV_PORT_ACTIVE=4,
    IBV_GID_TYPE_SYSFS_ROCE_V2=1, IBV_ATOMIC_NONE=0, IBV_ATOMIC_HCA=1, IBV_ATOMIC_GLOB=2,
    IBV_ACCESS_LOCAL_WRITE=1, IBV_ACCESS_REMOTE_WRITE=2, IBV_ACCESS_REMOTE_READ=4, IBV_ACCESS_REMOTE_ATOMIC=8,
    IBV_WR_RDMA_WRITE=0, IBV_WR_SEND=2, IBV_WR_RDMA_READ=4, IBV_WR_ATOMIC_CMP_AND_SWP=5, IBV_WR_ATOMIC_FETCH_AND_ADD=6,
    IBV_EVENT_CQ_ERR=0, IBV_EVENT_PORT_ERR=10, IBV_EVENT_DEVICE_FATAL=8,
    IBV_QP_STATE=1, IBV_QP_ACCESS_FLAGS=1 << 3, IBV_QP_PKEY_INDEX=1 << 4, IBV_QP_PORT=1 << 5, IBV_QP_AV=1 << 7,
    IBV_QP_PATH_MTU=1 << 8, IBV_QP_TIMEOUT=1 << 9, IBV_QP_RETRY_CNT=1 << 10, IBV_QP_RNR_RETRY=1 << 11,
    IBV_QP_RQ_PSN=1 << 12, IBV_QP_MAX_QP_RD_ATOMIC=1 << 13, IBV_QP_MIN_RNR_TIMER=1 << 15, IBV_QP_SQ_PSN=1 << 16,
    IBV_QP_MAX_DEST_RD_ATOMIC=1 << 17, IBV_QP_DEST_QPN=1 << 20,
)  # fmt: skip
SUCCESS, LENGTH, PROTECTION, FLUSH, INVALID, ACCESS, RETRY, RNR = 0, 1, 4, 5, 9, 10, 12, 13
_ASKED = {  # by (state, next state): the mask that a reliable connection must have, ibv_modify_qp(3)
    (0, 1): 1 | 1 << 3 | 1 << 4 | 1 << 5,
    (1, 2): 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20,
    (2, 3): 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16,
}
_NEEDS = {0: 2, 4: 4, 5: 8, 6: 8}
GIDS = ("fe80:0000:0000:0000:0000:00ff:fe00:0001", "0000:" * 7 + "0000", "0000:0000:0000:0000:0000:ffff:0a3d:0001")


class PaperError(Exception):
    """What the library raises."""


class Descriptor:
    """Something with a descriptor that becomes readable; reading what is not there would block for ever."""

    def __init__(self, *_above: object, **_named: object) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def close(self) -> None:
        os.close(self.fd)


class Device:
    """The device: memory regions by key, queue pairs by number."""

    def __init__(self, *, atomic_caps: int = 2, active_mtu: int = 5, state: int = 4) -> None:
        self.atomic_caps, self.active_mtu, self.state = atomic_caps, active_mtu, state
        self.regions: dict[int, Region] = {}
        self.pairs: dict[int, Pair] = {}
        self.contexts: list[Context] = []
        self.broken = False
        self._next = 0x1100

    def number(self) -> int:
        self._next += 0x11
        return self._next

    def library(self) -> Library:
        """The modules, as `emulators.rdma_library.load` gives them."""
        qp = SimpleNamespace(
            QP=lambda pd, init: Pair(self, pd, init), QPAttr=SimpleNamespace,
            QPCap=lambda **caps: SimpleNamespace(**caps), QPInitAttr=lambda **init: SimpleNamespace(**init),
        )  # fmt: skip
        addr = SimpleNamespace(
            GID=lambda text: text, GlobalRoute=lambda **route: SimpleNamespace(**route),
            AHAttr=lambda **way: SimpleNamespace(**way),
        )  # fmt: skip
        wr = SimpleNamespace(SGE=Place, SendWR=Request, RecvWR=Request)
        return Library(
            device=SimpleNamespace(Context=lambda name: Context(self, name)),
            pd=SimpleNamespace(PD=Domain),
            cq=SimpleNamespace(CQ=Queue, CompChannel=Channel),
            mr=SimpleNamespace(MR=lambda pd, length, access, address: Region(self, pd, length, access, address)),
            qp=qp, wr=wr, addr=addr, enums=ENUMS, error=PaperError,
        )  # fmt: skip

    def advance(self) -> None:
        """Carries out everything that was posted."""
        for pair in list(self.pairs.values()):
            while pair.sends and pair.state == ENUMS.IBV_QPS_RTS:
                pair.carry_out(pair.sends[0])

    def die(self) -> None:
        """It is pulled out: nothing is carried out any more, and every context is told."""
        self.broken = True
        for context in self.contexts:
            context.tell(ENUMS.IBV_EVENT_DEVICE_FATAL)


class Context(Descriptor):
    def __init__(self, device: Device, name: str) -> None:
        if name != "paper0":
            raise PaperError(f"Failed to find device {name}")
        super().__init__()
        self._device = device
        self._told: deque[int] = deque()
        device.contexts.append(self)

    def query_port(self, _port: int) -> Any:
        return SimpleNamespace(state=self._device.state, gid_tbl_len=len(GIDS), active_mtu=self._device.active_mtu)

    def query_gid(self, _port: int, row: int) -> Any:
        return SimpleNamespace(gid=GIDS[row])

    def query_gid_type(self, _port: int, row: int) -> int:
        return int(row == 2)

    def query_device(self) -> Any:
        caps = self._device.atomic_caps
        return SimpleNamespace(
            atomic_caps=caps, max_cqe=4000, max_qp_wr=64, max_qp_rd_atom=16, max_qp_init_rd_atom=4, fw_version="1.2.3"
        )

    def tell(self, kind: int) -> None:
        self._told.append(kind)
        os.eventfd_write(self.fd, 1)

    def get_async_event(self) -> Any:
        os.eventfd_read(self.fd)
        return SimpleNamespace(event_type=self._told.popleft(), ack=lambda: None)


class Domain:
    def __init__(self, _context: Context) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Region:
    def __init__(self, device: Device, pd: Domain, length: int, access: int, address: int) -> None:
        self.pd, self.length, self.access, self.address, self.device = pd, length, access, address, device
        self.lkey = self.rkey = device.number()
        device.regions[self.rkey] = self

    def holds(self, pd: Domain, address: int, length: int, access: int) -> bool:
        within = self.address <= address and address + length <= self.address + self.length
        return within and self.pd is pd and self.access & access == access

    def close(self) -> None:
        del self.device.regions[self.rkey]


class Channel(Descriptor):
    def get_cq_event(self, _queue: Queue) -> None:
        os.eventfd_read(self.fd)


class Queue:
    def __init__(self, _context: Context, entries: int, _own: None, channel: Channel, _vector: int) -> None:
        self._entries, self._channel = entries, channel
        self._found: deque[Any] = deque()
        self._asked = False
        self.device: Device | None = None

    def add(self, wr_id: int, status: int, length: int = 0) -> None:
        assert len(self._found) < self._entries, "the completion queue runs over"
        self._found.append(SimpleNamespace(wr_id=wr_id, status=status, byte_len=length))
        if self._asked:
            self._asked = False
            os.eventfd_write(self._channel.fd, 1)

    def poll(self, count: int) -> tuple[int, list[Any]]:
        taken = [self._found.popleft() for _ in range(min(count, len(self._found)))]
        return len(taken), taken

    def req_notify(self) -> None:
        self._asked = True

    def ack_events(self, count: int) -> None:
        assert count == 1

    def close(self) -> None:
        pass


class Place:
    def __init__(self, addr: int, length: int, lkey: int) -> None:
        self.addr, self.length, self.lkey = addr, length, lkey


class Request:
    """A SendWR or RecvWR."""

    def __init__(self, wr_id: int = 0, num_sge: int = 0, sg: list[Place] | None = None) -> None:
        assert sg is not None, "a WR needs at least one SGE"
        self.wr_id, self.num_sge, self.sg_list, self.opcode = wr_id, num_sge, sg[0], 2
        self.remote = (0, 0, 0, 0)

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        self.remote = (addr, rkey, 0, 0)

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        self.remote = (addr, rkey, compare_add, swap)

    def taken(self) -> Any:
        """As the device keeps it: nothing that is changed later is seen."""
        place = self.sg_list
        size = place.length if self.num_sge else 0
        return SimpleNamespace(
            wr_id=self.wr_id, opcode=self.opcode, addr=place.addr, size=size, lkey=place.lkey, remote=self.remote
        )


class Pair:
    def __init__(self, device: Device, pd: Domain, init: Any) -> None:
        self.device, self.pd, self.init, self.state = device, pd, init, 0
        self.qp_num = device.number()
        self.sends: deque[Any] = deque()
        self.receives: deque[Any] = deque()
        self.settings = SimpleNamespace()
        device.pairs[self.qp_num] = self

    def modify(self, attributes: Any, mask: int) -> None:
        to = attributes.qp_state
        if to == ENUMS.IBV_QPS_RESET:
            self.state = to
            self.sends.clear()
            self.receives.clear()
            return
        if _ASKED.get((self.state, to)) != mask:
            raise PaperError(f"Failed to modify QP state to {to}: EINVAL")
        for name, value in vars(attributes).items():
            setattr(self.settings, name, value)
        self.state = to

    def post_recv(self, request: Request) -> None:
        if not self.state:
            raise PaperError("Failed to post recv: EINVAL")
        if len(self.receives) >= self.init.cap.max_recv_wr:
            raise PaperError("Failed to post recv: ENOMEM")
        if self.state == ENUMS.IBV_QPS_ERR:
            self.init.rcq.add(request.wr_id, FLUSH)
        else:
            self.receives.append(request.taken())

    def post_send(self, request: Request) -> None:
        if self.state == ENUMS.IBV_QPS_ERR:
            self.init.scq.add(request.wr_id, FLUSH)
            return
        if self.state != ENUMS.IBV_QPS_RTS or self.device.broken:
            raise PaperError("Failed to post send: EINVAL")
        if len(self.sends) >= self.init.cap.max_send_wr:
            raise PaperError("Failed to post send: ENOMEM")
        self.sends.append(request.taken())

    def carry_out(self, work: Any) -> None:
        """The first request of the queue, to its end."""
        self.sends.popleft()
        peer = self.device.pairs.get(self.settings.dest_qp_num)
        own = self.device.regions.get(work.lkey)
        if work.size and (own is None or not own.holds(self.pd, work.addr, work.size, 0)):
            self._fail(work.wr_id, PROTECTION)
        elif peer is None or peer.state not in (2, 3) or peer.settings.dest_qp_num != self.qp_num:
            self._fail(work.wr_id, RETRY)
        elif work.opcode == ENUMS.IBV_WR_SEND:
            self._send(work, peer)
        elif fault := self._fault(work, peer):
            self._fail(work.wr_id, fault)
            peer.fall()
        else:
            self._touch(work)
            self.init.scq.add(work.wr_id, SUCCESS, work.size)

    def _fault(self, work: Any, peer: Pair) -> int:
        address, key = work.remote[:2]
        if work.opcode in (5, 6) and address % 8:
            return INVALID
        region = peer.device.regions.get(key)
        fine = region is not None and region.holds(peer.pd, address, work.size, _NEEDS[work.opcode])
        return SUCCESS if fine or not work.size else ACCESS

    def _touch(self, work: Any) -> None:
        address, _, operand, swap = work.remote
        match work.opcode:
            case 0:
                ctypes.memmove(address, work.addr, work.size)
            case 4:
                ctypes.memmove(work.addr, address, work.size)
            case _:
                word = ctypes.c_uint64.from_address(address)
                before = word.value
                ctypes.c_uint64.from_address(work.addr).value = before
                if work.opcode == ENUMS.IBV_WR_ATOMIC_FETCH_AND_ADD:
                    word.value = before + operand
                elif before == operand:
                    word.value = swap

    def _send(self, work: Any, peer: Pair) -> None:
        if not peer.receives:
            self._fail(work.wr_id, RNR)
            return
        place = peer.receives.popleft()
        if work.size > place.size:
            peer.init.rcq.add(place.wr_id, LENGTH)
            peer.fall()
            self._fail(work.wr_id, INVALID)
            return
        ctypes.memmove(place.addr, work.addr, work.size)
        peer.init.rcq.add(place.wr_id, SUCCESS, work.size)
        self.init.scq.add(work.wr_id, SUCCESS, work.size)

    def _fail(self, wr_id: int, status: int) -> None:
        self.init.scq.add(wr_id, status)
        self.fall()

    def fall(self) -> None:
        """To the error state; all that waits is flushed."""
        self.state = ENUMS.IBV_QPS_ERR
        while self.sends:
            self.init.scq.add(self.sends.popleft().wr_id, FLUSH)
        while self.receives:
            self.init.rcq.add(self.receives.popleft().wr_id, FLUSH)

    def close(self) -> None:
        self.device.pairs.pop(self.qp_num, None)
