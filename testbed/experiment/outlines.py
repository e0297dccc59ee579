"""What a system says of itself: the nodes that it needs, before they have addresses, and how they are assembled.

The shapes of `testbed.experiment.assembly`'s one table, apart from it so that each system's row can stand in a module
of its own. They know no system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from testbed.clocks.node_host import Accelerator
from testbed.events.run_events import HostProvisioned
from testbed.experiment.plan import NodePlan, Plan, Role
from testbed.machine import Machine
from testbed.network.host_design import PAPERS_HOST, HostDesign
from testbed.network.memory_region import LocalMemory
from testbed.serving.executor import Executor
from testbed.serving.tokens import Vocabulary
from testbed.units import Nanoseconds


class RegionOutline(NamedTuple):
    """A memory region that a node offers to its peers."""

    name: str
    size: int
    """Bytes; true ones where `bulk`, and the plan has room for the images of so many (`testbed.units.image_bytes`)."""
    bulk: bool = False
    """Holds images of KV or weights: one byte for `byte_scale` true ones."""
    grain: int = 1
    """True bytes of the smallest thing that has an image of its own, where `bulk`."""
    dram: bool = False
    """Lies in the host's memory and not in a device's."""


class ConnectionOutline(NamedTuple):
    """One end of a queue pair. The other end must be outlined too, with the same service level."""

    interface: str
    peer: str
    """Name of the node; the node's own for loop-back."""
    peer_interface: str
    service_level: int = 0
    """The port's table maps it to a virtual lane."""
    messages: bool = True
    """Whether SENDs come over it; pairs that carry WRITEs and READs alone need no receives."""


class NodeOutline(NamedTuple):
    """A node that a system needs, before it has addresses."""

    name: str
    role: Role
    cores: Literal["host", "hardware"]
    memory_mib: int
    ports: tuple[str, ...] = ()
    """Interfaces, named after their fabric: front0; cnic0, cnic1, … on compute; snic0, … on storage."""
    connections: tuple[ConnectionOutline, ...] = ()
    regions: tuple[RegionOutline, ...] = ()
    pcie_bits_per_s: int = 0
    """As `NodePlan`."""
    dram_bits_per_s: int = 0
    """As `NodePlan`."""
    host_design: HostDesign = PAPERS_HOST
    """As `NodePlan`."""
    attached: tuple[str, ...] = ()
    """As `NodePlan`: PCIe, said by both ends."""
    processes: tuple[tuple[str, ...], ...] = ()
    """As `NodePlan`."""


class NodeAssembly(NamedTuple):
    """What runs on one node."""

    machines: tuple[Machine, ...]
    accelerator: Accelerator | None = None


class Surroundings(NamedTuple):
    """What a node's machines are given by the process that runs them."""

    memories: Mapping[str, LocalMemory]
    """The node's regions by name."""
    vocabulary: Vocabulary | None = None
    """None where nobody speaks text."""
    executor: Executor | None = None
    """The node's real device, if any: runs graphs in place of the cost model."""
    processor: Accelerator | None = None
    """Does the node's host work, where a process really does it; None: as it is modelled."""


class Owner(NamedTuple):
    """Who owns a device's memory, outlives every scheduler on it, and starts a new one when it is asked to."""

    restart_asked: Callable[[], bool]
    """Whether somebody asks for a new scheduler."""
    begin_life: Callable[[], int]
    """The old one has ended, the new one begins; its number."""
    restart_cost: Nanoseconds
    """True time from the question to the start, where no process takes it."""


SCHEDULER_PROCESS = "scheduler"
"""What the process of a scheduler that may die calls itself (/proc/PID/comm), apart from its owner's."""


class System(NamedTuple):
    """One row of `SYSTEMS`."""

    kind: str
    parameters: type[msgspec.Struct]
    page: str
    """Its page, from the top of the source tree."""
    plan_nodes: Callable[[Any], tuple[NodeOutline, ...]]
    """The nodes for its parameters. The first one whose role serves an API answers the clients."""
    server: tuple[str, str]
    """(node, machine) that answers the clients."""
    assemble: Callable[[Plan, Any, NodePlan, Surroundings], NodeAssembly]
    """The machines of one of its nodes; hosts are the same for all systems, and so are clients that speak text."""
    provision: Callable[[Any], HostProvisioned] | None = None
    """What the host does before it leaves the path, where there is one. Raises ValueError where the device has no
    room for it."""
    check: Callable[[Any], None] | None = None
    """Raises ValueError where parameters do not go together."""
    notes: Callable[[Any, Mapping[str, int]], list[str]] | None = None
    """What a reader of the plan must know; given the parameters and the true rate of each fabric's ports in bit/s."""
    owner: Callable[[Any, Mapping[str, LocalMemory]], Owner] | None = None
    """The owner of a GPU node's memory, given parameters and the node's regions; None where no scheduler is ever
    restarted."""
    simulated_only: Callable[[Any], list[str]] | None = None
    """Which of the parameters are models that no emulation has, by name."""
    clients: Literal["text", "agents"] = "text"
    """Whether clients send prompts of text at a schedule, or play agents' trajectories of counted tokens."""
