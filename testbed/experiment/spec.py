"""An experiment as its author writes it: a question, the systems that answer it, what they are asked, on what network.

These structs are the file format: frozen, strict about unknown keys, every field with its bounds and its meaning.
`testbed.experiment.reading` makes them from TOML and complains with file, path and value; the parameters of a system
are checked by its row in `testbed.experiment.assembly.SYSTEMS`. This file reads nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from testbed.experiment.hardware import Hardware
from testbed.experiment.plan import FaultKind
from testbed.network.lanes import LaneTable
from testbed.network.traffic_classes import TrafficClasses
from testbed.workload.schedule import Workload

Name: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,39}$")]
SystemName: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,15}$")]
Seed: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""As far as every reader of JSON can count."""
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=2000)]

MOST_TRIALS = 1000
"""Systems x sweep points x repeats of one experiment."""


class SystemSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One system under test, and what is about it: its place on the bench, its neighbours, what protects it."""

    kind: str
    """Row of `testbed.experiment.assembly.SYSTEMS`."""
    parameters: dict[str, Any] = {}
    """Complete with defaults, as the row's parameter class has checked them; in the file they stand beside `kind`."""
    neighbours: list[Name] = []
    """Names of `[neighbours.NAME]` that run beside this system on the host's CPU set."""
    mitigations: list[Literal["pinning", "huge_pages", "cache_partition", "priority"]] = []
    """What is to protect the system's host software from its neighbours; what the host lacks is named by the run."""
    cores: dict[str, Literal["host", "hardware", "reserved"]] = {}
    """Role of a node → CPU set, where it is not the system's own choice. `reserved`: cores that no neighbour may use,
    without the precedence that hardware has."""
    dilation: Annotated[float, msgspec.Meta(ge=0.01, le=10_000)] | None = None
    """In place of the experiment's dilation, for this system's trials."""


class ComputeNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The RoCEv2 fabric between DPUs and GPUs, and between the GPUs of engines."""

    rate_gbit_s: Annotated[float, msgspec.Meta(gt=0, le=1600)] = 200.0
    """True rate of every port; the default is that of the BlueField-3 in Blink's evaluation."""
    path_mtu: Literal[256, 512, 1024, 2048, 4096] = 4096
    """Payload of one RoCEv2 packet in bytes (IBA 9.3.3.1)."""
    lanes: LaneTable = LaneTable()
    """Virtual lanes of every port, in OpenSM's strings."""
    classes: TrafficClasses | None = None
    """Traffic classes in place of lanes: the RoCE form."""

    def __post_init__(self) -> None:
        _one_form(self.lanes, self.classes)


class StorageNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The RoCEv2 fabric between storage nodes and engines, physically apart from the compute fabric (DualPath §4)."""

    rate_gbit_s: Annotated[float, msgspec.Meta(gt=0, le=1600)] = 400.0
    """True rate of every SNIC and of every storage node's port; the default is DualPath's (up to 400 Gbit/s)."""
    lanes: LaneTable = LaneTable()
    """Virtual lanes of every port, in OpenSM's strings."""
    classes: TrafficClasses | None = None
    """Traffic classes in place of lanes: the RoCE form."""

    def __post_init__(self) -> None:
        _one_form(self.lanes, self.classes)


def _one_form(lanes: LaneTable, classes: TrafficClasses | None) -> None:
    if classes is not None and lanes != LaneTable():
        raise ValueError("lanes and classes do not go together: classes are the RoCE form of lanes")


class FrontNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The TCP network between clients and APIs."""

    rate_gbit_s: Annotated[float, msgspec.Meta(gt=0, le=1600)] = 25.0
    """True rate of every port."""
    delay_us: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 30.0
    """One way, in true microseconds, under the simulated clock; an emulation has real TCP instead. Our choice: what
    a packet takes through two kernels' stacks and a switch."""


class NetworkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fabrics, in true rates."""

    wire: Literal["flow", "packet"] = "flow"
    """How the simulated clock carries RDMA: `flow` shares ports as fluids do, `packet` arbitrates every packet."""
    ack_timeout: Annotated[int, msgspec.Meta(ge=8, le=24)] | None = None
    """InfiniBand's local ACK timeout: after 4.096 us x 2^this without progress a queue pair sends again. None: 14 under
    the simulated clock, 15 in a soft RNIC. More for lanes that are starved on purpose."""
    compute: ComputeNetwork = ComputeNetwork()
    """Between DPUs and GPUs, and between the GPUs of engines."""
    storage: StorageNetwork = StorageNetwork()
    """Between storage nodes and engines; its path MTU is the compute fabric's."""
    front: FrontNetwork = FrontNetwork()
    """Between clients and APIs."""


class CaptureSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pcap file of what one port of an emulation carries."""

    node: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    """Name of the node, as gpu0."""
    interface: Annotated[str, msgspec.Meta(min_length=1, max_length=15)]
    """Name of the port inside the node, as cnic0."""
    limit_mib: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 1024
    """The capture ends when its file has so many MiB, so that a long run fills no disk; the run goes on."""


class FaultSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that goes wrong on purpose while the run runs."""

    node: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    """Name of the node, as storage1 or de0."""
    at_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)]
    """True seconds after the run's start."""
    kind: FaultKind = "kill"
    """kill: its software and its NIC die at once, as in a loss of power, and do not come back. kill-scheduler and
    hang-scheduler: the scheduler on a GPU's node dies, or stops where it is; the node's memory and NIC live on."""


class NeighbourSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tenant beside the server on the host's CPU set: real work in containers of its own."""

    kind: Literal["pbzip2", "compile", "memory"]
    """pbzip2: compresses a generated file (Blink, sections 3 and 6); compile: a parallel compile (section 6); memory:
    mmap, madvise and munmap without end, so that TLBs and caches are lost."""
    threads: Annotated[int, msgspec.Meta(ge=0, le=256)] = 4
    """Threads of all containers together; 0 leaves the neighbour out, so that a sweep has its isolated point."""
    containers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Among how many containers they are shared: the kernel's fair scheduler gives each container one share."""
    working_set_mib: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 32
    """Memory that one thread works on."""


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a metric must be: one or two of these, and whether all repeats together or each of them."""

    at_least: float | None = None
    """The metric is this or more."""
    at_most: float | None = None
    """The metric is this or less."""
    between: tuple[float, float] | None = None
    """The metric is in this interval, both ends included."""
    equals: float | str | None = None
    """The metric is exactly this."""
    each_repeat: bool = False
    """Each repeat is held against the bound by itself, the systems of a ratio in the same repeat; else the pooled
    figures of all repeats are."""

    def __post_init__(self) -> None:
        bounds = ("at_least", "at_most", "between", "equals")
        said = [name for name in bounds if getattr(self, name) is not None]
        if not said:
            raise ValueError("a bound says at_least, at_most, between or equals")
        if len(said) > 1 and said != ["at_least", "at_most"]:
            raise ValueError(f"{' and '.join(said)} do not go together; only at_least and at_most do")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError("between starts above its end")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("at_least is above at_most")


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment."""

    name: Name
    """Short name, unique among experiments."""
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
    """One line for lists."""
    systems: Annotated[dict[SystemName, SystemSpec], msgspec.Meta(min_length=1, max_length=16)]
    """The systems under test; each is asked the same."""
    question: Text = ""
    """What the experiment is to find out."""
    seed: Seed = 1
    """Everything that is left to chance follows from it."""
    dilation: Annotated[float, msgspec.Meta(ge=0.01, le=10_000)] = 1.0
    """How many times slower than the modelled hardware an emulation runs; the simulated clock needs none."""
    byte_scale: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """By how much an emulation's links are slower than the modelled ones; no transfer is made smaller."""
    nodes: Literal["docker", "namespace", "auto"] = "auto"
    """What an emulated node is; `auto` takes containers where there is a Docker engine."""
    workload: Workload = Workload()
    """What the clients ask."""
    network: NetworkSpec = NetworkSpec()
    """The fabrics."""
    captures: Annotated[list[CaptureSpec], msgspec.Meta(max_length=32)] = []
    """Ports whose packets an emulation keeps."""
    faults: Annotated[list[FaultSpec], msgspec.Meta(max_length=16)] = []
    """What goes wrong on purpose: engines' and storage nodes that die."""
    neighbours: Annotated[dict[Name, NeighbourSpec], msgspec.Meta(max_length=8)] = {}
    """Tenants that a system may have beside it, by name; a system lists those that it has."""
    hardware: Hardware = Hardware()
    """Real parts that take the place of emulated ones; a simulation models them all the same."""
    expect: dict[str, Bound] = {}
    """Bounds on metrics, and on ratio(metric, metric). Each must hold at every point of the sweep."""
    sweep: dict[str, Annotated[list[Any], msgspec.Meta(min_length=1, max_length=100)]] = {}
    """Paths of this file, each with the values it takes in turn; several paths are crossed."""
    repeats: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """How often everything is done again with other seeds."""
    time_limit_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 600.0
    """Seconds after which one trial is ended as errored: of wall time in an emulation, of true time in a simulation."""
