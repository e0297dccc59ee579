"""Where a server's parts are: ingress, payload path, control loop, storage input. The axes, and the systems on them.

Issue-level ablation that neither paper has: the same machines at other places, so that a move is all that differs.
Systems: design/blink.md 2.8 and its sources. A placement says which machine is on which node, and by which way each
message goes; it knows no costs and no machine's inside.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import msgspec

Ingress: TypeAlias = Literal["host", "dpu"]
Payload: TypeAlias = Literal["host_dram", "direct"]
Control: TypeAlias = Literal["host", "dpu", "gpu"]
Storage: TypeAlias = Literal["host", "dpu"]
PointName: TypeAlias = Literal[
    "lynx", "splitrpc", "conspirator", "os2g", "vllm", "sglang", "tensorrt-llm", "blink"
]  # fmt: skip

SERVER = "ingress0"
"""The node that clients reach, whatever it is."""
GPU = "gpu0"
API, CORE, WORKER, DEVICE = "api", "core", "worker", "device"
WRITER, RELAY, STORED = "writer", "relay", "stored"
"""Machines: the prompt's WRITE into GPU memory, the copy through host memory, what a request needs from storage."""


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One point of the four axes."""

    ingress: Ingress
    """Who takes requests, tokenises and streams answers."""
    payload: Payload
    """How prompts reach GPU memory and tokens leave it: staged in host memory and copied, or by the NIC itself."""
    control: Control
    """Where every step of the batch is decided and launched."""
    storage: Storage = "host"
    """Who fetches what a request needs from storage; without effect where it needs nothing."""

    @property
    def host(self) -> str:
        """Name of the host's node; there always is one, since somebody provisions the GPU."""
        return SERVER if self.ingress == "host" else "host0"

    @property
    def dpu(self) -> str:
        """Name of the DPU's node, where there is one."""
        return SERVER if self.ingress == "dpu" else "dpu0"

    def nodes(self) -> tuple[str, ...]:
        """All nodes that serve, the one that clients reach first."""
        others = (self.dpu,) if "dpu" in (self.control, self.storage) else ()
        return tuple(dict.fromkeys((SERVER, self.host, *others, GPU)))

    def place_of(self, machine: str) -> str:
        """The node that a machine is on."""
        side = {
            API: self.ingress, WRITER: self.ingress, CORE: self.control, WORKER: self.control, STORED: self.storage,
            RELAY: "host", DEVICE: "gpu",
        }[machine]  # fmt: skip
        return {"host": self.host, "dpu": self.dpu, "gpu": GPU}[side]

    def side_of(self, node: str) -> Literal["host", "dpu", "gpu"]:
        """What a node is."""
        return "gpu" if node == GPU else "host" if node == self.host else "dpu"

    def route(self, *, stored: bool) -> Route:
        """Which machine's messages go to which, with the input from storage or without."""
        direct = self.payload == "direct"
        # On the host itself the copy is part of the control loop's work, as in the servers it is taken from.
        relayed = not direct and self.control != "host"
        asking = (API, *((WRITER,) if direct else ()), *((RELAY,) if relayed else ()), *((STORED,) if stored else ()))
        answering = (CORE, *((RELAY,) if relayed and self.control == "gpu" else ()), *((WRITER,) if direct else ()))
        ending = (DEVICE, *((RELAY,) if relayed and self.control == "dpu" else ()))
        return Route((*asking, CORE), (*answering, API), (WORKER, DEVICE), (*ending, WORKER))


class Route(NamedTuple):
    """Machines in the order in which a message passes them."""

    requests: tuple[str, ...]
    answers: tuple[str, ...]
    launches: tuple[str, ...]
    ends: tuple[str, ...]
    """Of steps."""

    def machines(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys((*self.requests, *self.answers, *self.launches, *self.ends)))

    def legs(self) -> tuple[tuple[str, str, bool], ...]:
        """(from, to, whether it is the device's business) of each step of the way."""
        host = [(path, False) for path in (self.requests, self.answers)]
        device = [(path, True) for path in (self.launches, self.ends)]
        return tuple(
            (one, other, of_device)
            for path, of_device in (*host, *device)
            for one, other in pairwise(path)
        )


def travels_over_pcie(placement: Placement, one: str, other: str, *, of_device: bool) -> bool:
    """Whether a leg between two nodes is the host's own way to its device; every other one crosses the network."""
    return of_device and {one, other} == {placement.host, GPU}


def wired(placement: Placement, route: Route) -> tuple[tuple[str, str], ...]:
    """Pairs of nodes that need a queue pair, each once and in the order of names."""
    pairs = set()
    for one, other, of_device in route.legs():
        here, there = placement.place_of(one), placement.place_of(other)
        if here != there and not travels_over_pcie(placement, here, there, of_device=of_device):
            pairs.add((min(here, there), max(here, there)))
    if WRITER in route.requests:
        pairs.add((min(SERVER, GPU), max(SERVER, GPU)))
    return tuple(sorted(pairs))


EMULATED = (
    Placement("host", "host_dram", "host"),
    Placement("dpu", "direct", "gpu"),
    Placement("dpu", "direct", "dpu"),
)
"""Placements whose every machine has an emulated node: a host that serves, a DPU with the API, a GPU. No emulated host
posts verbs yet, so whatever crosses the network from or to a host is simulated only; so is input from storage."""


class Point(NamedTuple):
    """A published system on the axes."""

    placement: Placement
    extrapolated: bool
    """It never ran token loops: the point says where its parts would be, not what it has measured."""
    source: str
    shape: Literal["vllm", "sglang", "tensorrt-llm"] | None = None
    """Row of the host loops, where the system is one of them."""


POINTS: dict[PointName, Point] = {
    "vllm": Point(Placement("host", "host_dram", "host"), False, "vLLM v0.13, by Blink's summary", "vllm"),
    "sglang": Point(Placement("host", "host_dram", "host"), False, "SGLang v0.5.8, by Blink's summary", "sglang"),
    "tensorrt-llm": Point(
        Placement("host", "host_dram", "host"), False, "TensorRT-LLM v1.1.0, by Blink's summary", "tensorrt-llm"
    ),
    "lynx": Point(
        Placement("dpu", "direct", "dpu"), True,
        "Lynx, ASPLOS 2020: a SmartNIC drives accelerator-centric servers; one-shot inference only",
    ),
    "splitrpc": Point(
        Placement("host", "direct", "host"), False,
        "SplitRPC, POMACS 2023: payload from the NIC to the accelerator, the CPU orchestrates; our sources do not "
        "say whether it ran token loops",
    ),
    "conspirator": Point(
        Placement("dpu", "host_dram", "dpu"), True,
        "Conspirator, USENIX ATC 2024: a control plane on the SmartNIC, of tasks and not of tokens",
    ),
    "os2g": Point(
        Placement("host", "direct", "host", "dpu"), True,
        "OS2G, ASPLOS 2025: the object store's client on the DPU, data straight to the GPU; training input",
    ),
    "blink": Point(Placement("dpu", "direct", "gpu"), False, "Blink, arXiv 2604.07609"),
}  # fmt: skip
"""By name. design/blink.md 2.8; what a source leaves open of an axis is our reading of its one line there."""
