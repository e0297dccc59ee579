"""Two soft RNICs back to back, each with software's verbs: for measurements, and for whoever tests the wire.

`NicPair` starts two NIC processes from a small plan of two nodes, each with one region, and connects this process to
both. They speak over loopback, or in two network namespaces: those of a `LinkedNamespaces`, which are joined by a
bridge in a third, as the nodes of a run are, or `NamedNamespaces` that somebody else has made. Each cleans up what it
made, by name and pid.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from emulators.shared_memory import SharedMemory
from emulators.verbs import Verbs
from emulators.verbs_ring import QueueSizes
from testbed.experiment.plan import FabricPlan, NodePlan, Plan, PortPlan, QueuePairPlan, RegionPlan, write_plan
from testbed.machine import Completion, Received, RemoteAddress
from testbed.network.lanes import LaneTable
from testbed.units import MIB

REQUESTER, OWNER = "dpu0", "gpu0"
REGION = RegionPlan(name="ring", size=4 * MIB, address=0x1000_0000, key=0x1234)
UNSHAPED = 10**12
_MTU = 4200


class LinkedNamespaces:
    """Two network namespaces with an interface `cnic0` each, joined by a bridge in a third. Needs root.

    IPv6 is off, receive order is kept by NAPI on the nodes' side (platform.md §3).
    """

    def __init__(self) -> None:
        label = secrets.token_hex(3)
        self.names = (f"looplane-{label}-a", f"looplane-{label}-b")
        self.addresses = ("10.61.7.1", "10.61.7.2")
        self.switch = f"looplane-{label}-s"

    def __enter__(self) -> LinkedNamespaces:
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def prefix(self, index: int) -> list[str]:
        """Command words that put a program into one of the two."""
        return ["ip", "netns", "exec", self.names[index]]

    def cut(self, index: int) -> None:
        """Deletes the link of one of the two, as a port that is pulled out with its cable."""
        _run([*self.prefix(index), "ip", "link", "delete", "cnic0"])

    def set_link(self, index: int, *, up: bool) -> None:
        """Takes the switch's end of a link down or up; the node keeps its address."""
        state = "up" if up else "down"
        _run(["ip", "netns", "exec", self.switch, "ip", "link", "set", f"p{index}", state])

    def _make(self) -> None:
        for name in (*self.names, self.switch):
            _run(["ip", "netns", "add", name])
            _run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"])
        switch = ["ip", "netns", "exec", self.switch]
        _run([*switch, "ip", "link", "add", "br0", "mtu", str(_MTU), "type", "bridge"])
        _run([*switch, "ip", "link", "set", "br0", "up"])
        for index, address in enumerate(self.addresses):
            node = self.prefix(index)
            port = f"p{index}"
            _run([*node, "ip", "link", "add", "cnic0", "mtu", str(_MTU), "type", "veth",
                  "peer", "name", port, "mtu", str(_MTU), "netns", self.switch])  # fmt: skip
            _run([*node, "ip", "address", "add", f"{address}/24", "dev", "cnic0"])
            _run([*switch, "ip", "link", "set", port, "master", "br0", "up"])
            _run([*switch, "ethtool", "-K", port, "tso", "off"])
            _run([*node, "ethtool", "-K", "cnic0", "gro", "on"])
            _run([*node, "ip", "link", "set", "cnic0", "up"])
            _run([*node, "ip", "link", "set", "lo", "up"])
        for index in range(2):
            # Neighbours are fixed, as the plan's MAC addresses let a run fix them: no ARP in a measurement.
            mac = _run([*self.prefix(1 - index), "cat", "/sys/class/net/cnic0/address"]).strip()
            other = self.addresses[1 - index]
            _run([*self.prefix(index), "ip", "neighbour", "replace", other, "lladdr", mac, "dev", "cnic0"])


class Ends(Protocol):
    """Two network namespaces with an interface `cnic0` each."""

    addresses: tuple[str, str]

    def prefix(self, index: int) -> list[str]:
        """Command words that put a program into one of the two."""
        ...


class NamedNamespaces:
    """The two ends of a network that somebody else has made: a process in each, and their addresses there."""

    def __init__(self, pids: tuple[int, int], addresses: tuple[str, str]) -> None:
        self.pids = pids
        self.addresses = addresses

    def prefix(self, index: int) -> list[str]:
        """Command words that put a program into one of the two."""
        return ["nsenter", f"--net=/proc/{self.pids[index]}/ns/net"]


class NicPair:
    """Two running soft RNICs and the verbs of both nodes' software, all this process's."""

    def __init__(
        self,
        namespaces: Ends | None = None,
        *,
        rate_bits_per_s: int = UNSHAPED,
        options: Sequence[str] = (),
        cores: tuple[int, int] | None = None,
        sizes: QueueSizes | None = None,
        receives: int = 16,
        receive_bytes: int = 4096,
        lanes: LaneTable | None = None,
        service_levels: Sequence[int] = (0,),
        names: tuple[str, str] = (REQUESTER, OWNER),
        region: RegionPlan = REGION,
        first_psn: int = 0xFFFFF0,
    ) -> None:
        """`options` are further arguments of both NIC processes, e.g. faults; a queue pair for each service level.

        `first_psn` is the first node's first sequence number, by default one that is about to wrap.

        `cores` pins each NIC to one core.
        """
        self.names = names
        self.region = region
        self.addresses = namespaces.addresses if namespaces is not None else _loopback_addresses()
        self.plan = _plan(names, self.addresses, rate_bits_per_s, lanes, service_levels, region, first_psn)
        self._namespaces = namespaces
        self._options = list(options)
        self._cores = cores
        self._sizes = sizes or QueueSizes()
        self._receives = receives
        self._receive_bytes = receive_bytes
        self.folder = Path()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.verbs: dict[str, Verbs] = {}
        self.memories: dict[str, SharedMemory] = {}

    def __enter__(self) -> NicPair:
        self.folder = Path(tempfile.mkdtemp(prefix="looplane-pair-"))
        try:
            (self.folder / "plan.json").write_bytes(write_plan(self.plan))
            (self.folder / "control").mkdir()
            for name in self.names:
                self.start(name)
            for name in self.names:
                self.verbs[name] = self.connect(name)
                self.memories[name] = self.verbs[name].register(self.region)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for verbs in self.verbs.values():
            verbs.close()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for memory in self.memories.values():
            memory.close()
        shutil.rmtree(self.folder)

    @property
    def remote(self) -> RemoteAddress:
        """The first byte of a region; both nodes' regions have the same address and key."""
        return RemoteAddress(self.region.address, self.region.key)

    @property
    def memory(self) -> SharedMemory:
        """The second node's region."""
        return self.memories[self.names[1]]

    def socket(self, name: str) -> Path:
        """Where the NIC of a node listens."""
        return self.folder / f"{name}.nic"

    def start(self, name: str) -> None:
        """Starts (again) the NIC process of a node."""
        prefix = [] if self._namespaces is None else self._namespaces.prefix(self.names.index(name))
        command = [sys.executable, "-m", "emulators.rnic", "--run", str(self.folder), "--node", name]
        if self._cores is not None:
            command += ["--cores", str(self._cores[self.names.index(name)])]
        self.processes[name] = subprocess.Popen([*prefix, *command, "--socket", str(self.socket(name)), *self._options])

    def connect(self, name: str) -> Verbs:
        """Verbs of a node's software; one at a time."""
        node = self.plan.node(name)
        receives, receive_bytes = self._receives, self._receive_bytes
        return Verbs.connect(
            self.socket(name), node, sizes=self._sizes, receives=receives, receive_bytes=receive_bytes
        )


def wait_for(verbs: Verbs, count: int = 1, timeout_s: float = 20.0) -> list[Completion | Received]:
    """Polls until `count` messages have come, sleeping in between. Raises TimeoutError with what did come."""
    found = verbs.poll()
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        rest = deadline - time.monotonic()
        if rest <= 0 or not verbs.sleep(rest):
            raise TimeoutError(f"after {timeout_s} s only {found}")
        found += verbs.poll()
    return found


def _plan(
    names: Sequence[str],
    addresses: Sequence[str],
    rate: int,
    lanes: LaneTable | None,
    service_levels: Sequence[int],
    region: RegionPlan,
    first_psn: int,
) -> Plan:
    nodes = []
    for index, name in enumerate(names):
        port = PortPlan("cnic0", "compute", addresses[index], f"02:00:00:00:00:0{index + 1}", rate, rate)
        nodes.append(
            NodePlan(
                name=name,
                role=("dpu", "gpu")[index],
                cores="hardware",
                memory_mib=256,
                ports=(port,),
                queue_pairs=_queue_pairs(index, names[1 - index], addresses[1 - index], service_levels, first_psn),
                regions=(region,),
            )
        )
    fabric = FabricPlan(name="compute", subnet="10.61.7.0/24", mtu=_MTU, roce=True, lanes=lanes)
    return Plan(
        run="nic-pair",
        label="000000",
        clock="wall",
        system="pair",
        kind="pair",
        seed=1,
        dilation=1.0,
        byte_scale=1,
        path_mtu=4096,
        fabrics=(fabric,),
        nodes=tuple(nodes),
        parameters={},
        workload={},
    )


def _queue_pairs(
    index: int, peer: str, peer_address: str, service_levels: Sequence[int], first_psn: int
) -> tuple[QueuePairPlan, ...]:
    numbers = (0x100, 0x200)
    psns = (first_psn, 0x40)
    return tuple(
        QueuePairPlan(
            peer=peer,
            interface="cnic0",
            number=numbers[index] + place,
            peer_number=numbers[1 - index] + place,
            peer_address=peer_address,
            initial_psn=psns[index],
            peer_psn=psns[1 - index],
            service_level=level,
        )
        for place, level in enumerate(service_levels)
    )


def _loopback_addresses() -> tuple[str, str]:
    """Two addresses of 127.0.0.0/8 that another pair hardly has at the same time: the UDP port is always 4791."""
    network = f"127.{1 + secrets.randbelow(250)}.{secrets.randbelow(250)}"
    return f"{network}.1", f"{network}.2"


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
