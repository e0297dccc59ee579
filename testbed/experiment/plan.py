"""A plan: everything that is decided before a run starts, in one file (`plan.json`) that every process reads.

Names, addresses, queue-pair numbers, keys and rates are fixed here, so nodes need no exchange of their own: the
topology builds what the plan says, a soft RNIC opens the queue pairs it lists, a node finds its regions in it.
Rates are true ones; `kernel_rate_bits_per_s` is what the emulation sets (true ÷ byte_scale ÷ dilation).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from testbed.experiment.hardware import Hardware
from testbed.network.host_design import PAPERS_HOST, HostDesign
from testbed.network.lanes import LaneTable
from testbed.network.wire_profile import WireProfile

Role: TypeAlias = Literal["client", "dpu", "gpu", "host", "storage", "prefill", "decode", "scheduler"]
"""What a node stands for; its software is `emulators.<role>`."""


CpuSet: TypeAlias = Literal["host", "hardware", "reserved"]

FaultKind: TypeAlias = Literal["kill", "kill-scheduler", "hang-scheduler"]
"""What goes wrong with a node; see `testbed.experiment.spec.FaultSpec`."""


class PortPlan(msgspec.Struct, frozen=True):
    """One interface of a node."""

    interface: str
    """Name inside the node, at most 15 characters: front0, cnic0, snic0."""
    fabric: str
    """front, compute or storage."""
    address: str
    """IPv4, without a prefix length; all ports of a fabric share one /24."""
    mac: str
    rate_bits_per_s: int
    kernel_rate_bits_per_s: int


class FabricPlan(msgspec.Struct, frozen=True):
    """One switch and its ports."""

    name: str
    subnet: str
    """As 10.61.0.0/24."""
    mtu: int
    """Ethernet MTU of every port: 1500 on front, 4200 where RoCEv2 has a path MTU of 4096."""
    roce: bool
    """True where soft RNICs speak; their egress at the switch is shaped into lanes."""
    lanes: LaneTable | None = None


class QueuePairPlan(msgspec.Struct, frozen=True):
    """One end of a reliable connection."""

    peer: str
    """Name of the node at the other end."""
    interface: str
    number: int
    """24 bits, unique on the node."""
    peer_number: int
    peer_address: str
    initial_psn: int
    peer_psn: int
    service_level: int = 0
    peer_interface: str = ""
    """The port at the other end; verbs may name it. Empty where the peer has one port only."""
    messages: bool = True
    """Whether SENDs come over it, so that receives must be posted."""


class RegionPlan(msgspec.Struct, frozen=True):
    """A memory region that peers may reach."""

    name: str
    size: int
    address: int
    key: int
    bulk: bool = False
    """Bulk regions hold images of KV and weights, one byte for `byte_scale` true ones; rings and metadata never."""
    dram: bool = False
    """True where the region lies in the host's memory, for the flow wire's model of it."""


class NodePlan(msgspec.Struct, frozen=True):
    """One emulated node."""

    name: str
    role: Role
    cores: CpuSet
    """Which CPU set: the host's and its neighbours', that of hardware with silicon of its own, or cores of the host
    that no neighbour may use."""
    memory_mib: int
    ports: tuple[PortPlan, ...] = ()
    queue_pairs: tuple[QueuePairPlan, ...] = ()
    regions: tuple[RegionPlan, ...] = ()
    attached: tuple[str, ...] = ()
    """Nodes at the other end of a PCIe link of this one; machines speak to theirs as "node/machine"."""
    processes: tuple[tuple[str, ...], ...] = ()
    """Machines by operating-system process, the one that serves the API first; empty: one process for all."""
    pcie_bits_per_s: int = 0
    """Each way of each RoCE port's PCIe link, as the flow wire models it; 0 leaves it out."""
    dram_bits_per_s: int = 0
    """The node's memory, reads and writes together, as the flow wire models it; 0 leaves it out."""
    host_design: HostDesign = PAPERS_HOST
    """What of the node's inside is another than today's hardware has, as the flow wire models it."""
    silicon: bool = True
    """Whether its software stands for a machine or a device of its own, which nothing on the host may slow: it has
    SCHED_FIFO and its lateness is judged. Never so for hosts, nor where the experiment puts it on cores of the host;
    then its lateness is what is measured."""

    def log_names(self) -> list[str]:
        """What the logs of its software are called, one a process, its first process's first; not its NIC's."""
        return [self.name, *(f"{self.name}-{group[0]}" for group in self.processes[1:])]


class CapturePlan(msgspec.Struct, frozen=True):
    """A capture at a switch port: `node`'s `interface`."""

    node: str
    interface: str
    limit_mib: int = 1024
    """Size at which the capture ends."""


class FaultPlan(msgspec.Struct, frozen=True):
    """A node that dies on purpose, or its scheduler."""

    node: str
    at: int
    """True nanoseconds after the run's start."""
    kind: FaultKind = "kill"


class NeighbourPlan(msgspec.Struct, frozen=True):
    """A tenant beside the system on the host's CPU set."""

    name: str
    kind: str
    """pbzip2, compile or memory."""
    threads: int
    containers: int
    working_set_mib: int

    def shares(self) -> tuple[int, ...]:
        """Threads of each container; none is empty."""
        share, rest = divmod(self.threads, min(self.containers, self.threads))
        return tuple(share + (number < rest) for number in range(min(self.containers, self.threads)))


class Plan(msgspec.Struct, frozen=True):
    """The whole run."""

    run: str
    """Run id; also the folder's name."""
    label: str
    """Six hex digits that every kernel and Docker name of this run carries."""
    clock: Literal["simulated", "wall"]
    system: str
    """Name of the system in the spec."""
    kind: str
    """Row of `testbed.experiment.assembly.SYSTEMS`."""
    seed: int
    dilation: float
    byte_scale: int
    path_mtu: int
    fabrics: tuple[FabricPlan, ...]
    nodes: tuple[NodePlan, ...]
    parameters: dict[str, Any]
    """The system's parameters, complete with defaults; the row's parameter class reads them."""
    workload: dict[str, Any]
    """The workload, complete with defaults (`testbed.experiment.spec`)."""
    captures: tuple[CapturePlan, ...] = ()
    time_limit_s: float = 600.0
    """Wall seconds after which the bench ends the run as errored."""
    nodes_as: Literal["docker", "namespace", "auto"] = "auto"
    """What an emulated node is; `auto` takes containers where there is a Docker engine."""
    wire: Literal["flow", "packet"] = "flow"
    """How the simulated clock carries verbs; an emulation has a soft RNIC."""
    front_delay: int = 30_000
    """One way on the front network under the simulated clock, in true nanoseconds."""
    answer_delay: int | None = None
    """The same for answers, where it is another one; only a twin's is (`testbed.experiment.twin`)."""
    wire_latency: int = 1_000
    """One way from NIC to NIC under the simulated clock, in true nanoseconds (`WireSettings.latency`)."""
    ack_timeout: int | None = None
    """Local ACK timeout of every queue pair, as 4.096 us x 2^this; None takes each wire's own."""
    workload_seed: int = 0
    """Seed of the schedule: the same for all systems and sweep points that are compared."""
    trial: str = ""
    """Name of the trial among those of its experiment, and of its folder; empty when it is the only one."""
    point: dict[str, Any] = {}
    """The trial's value for each path of the experiment's sweep."""
    repeat: int = 0
    """Which repeat of the experiment this is, from 0."""
    notes: tuple[str, ...] = ()
    """What the planner chose and why: scaling, packet budget, anything a reader must know."""
    faults: tuple[FaultPlan, ...] = ()
    """What goes wrong on purpose, by time."""
    neighbours: tuple[NeighbourPlan, ...] = ()
    """Tenants on the host's CPU set; a simulation has their measured contention instead."""
    mitigations: tuple[str, ...] = ()
    """What is to protect the system from them."""
    hardware: Hardware = Hardware()
    """Real parts in place of emulated ones; empty in a simulation."""
    wire_profile: WireProfile | None = None
    """What the bench's wire can do, as the planner took it; None in a plan that was made without."""

    def finite_nodes(self) -> list[str]:
        """Nodes that say when their work has ended, and with it the run: clients; without any, prefill nodes."""
        for role in ("client", "prefill"):
            if found := [node.name for node in self.nodes if node.role == role]:
                return found
        return []

    def node(self, name: str) -> NodePlan:
        """The node `name`. Raises KeyError if the plan has none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


def read_plan(data: bytes) -> Plan:
    """A plan from the bytes of `plan.json`. Raises msgspec.ValidationError on anything unknown or missing."""
    return msgspec.json.decode(data, type=Plan)


def write_plan(plan: Plan) -> bytes:
    """`plan.json` of a plan, indented for people."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"
