"""PCIe between a host and its device in a simulation: messages for machines of another node, "node/machine" by name.

An emulation has a Unix socket here (`emulators.pcie_link`). The model: each direction of a link sends one message
after another at the link's rate, and each arrives a fixed latency later. There is no contention with other devices'
traffic. Sizes are those of what a server really moves: input tensors of a launch, sampled tokens of an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.clocks.arrivals import Arrivals
from testbed.machine import MachineError, Message
from testbed.serving.device_messages import LaunchStep, StepDone, StepFailed
from testbed.serving.graph_cache import PREFILL
from testbed.units import GBYTE_PER_S, Nanoseconds, serialization_time

LATENCY: Nanoseconds = 900
"""One way, posting to visibility. Neugebauer et al., "Understanding PCIe performance for end host networking" (SIGCOMM
2018): 64-byte reads, which go both ways, take 0.5 to 1.3 us on servers; DMA set-up and a flag's polling are in it."""
RATE_BITS_PER_S = 55 * GBYTE_PER_S
"""PCIe 5.0 x16, the H100's: 63 GB/s each way (32 GT/s, 128b/130b) less 12 % of headers at 256-byte payloads."""

LAUNCH_BYTES = 256
"""Of a launch itself: doorbell, kernel parameters. Our choice."""
LANE_BYTES = 64
"""Of each sequence: position, slot, length, sampling, new block-table entries. Counted: 8 fields of 4 or 8 bytes."""
TOKEN_BYTES = 4
"""Of a token id, in a prompt that goes there or among the tokens that come back."""
ANSWER_BYTES = 64
"""Of an answer beside its tokens: one completion record. Our choice."""


def link_size(message: Message) -> int:
    """Bytes of a message on the link. Raises MachineError for one that does not travel there."""
    match message:
        case LaunchStep(graph=graph, lanes=lanes):
            prompts = sum(lane.context for lane in lanes) if graph.kind == PREFILL else 0
            return LAUNCH_BYTES + LANE_BYTES * len(lanes) + TOKEN_BYTES * prompts
        case StepDone(tokens=tokens):
            return ANSWER_BYTES + TOKEN_BYTES * len(tokens)
        case StepFailed():
            return ANSWER_BYTES
        case _:
            raise MachineError(f"{type(message).__name__} does not travel over PCIe")


def split_address(to: str) -> tuple[str, str] | None:
    """(node, machine) of an address of another node, or None for a name without a node."""
    node, slash, machine = to.partition("/")
    return (node, machine) if slash else None


class PcieLinks:
    """All links of a plan. `attached` are pairs of nodes, in any order."""

    def __init__(
        self,
        attached: Iterable[tuple[str, str]] = (),
        *,
        latency: Nanoseconds = LATENCY,
        rate_bits_per_s: int = RATE_BITS_PER_S,
    ) -> None:
        self._latency = latency
        self._rate = rate_bits_per_s
        self._free: dict[tuple[str, str], Nanoseconds] = {}
        for one, other in attached:
            self._free[one, other] = self._free[other, one] = 0
        self._arrivals = Arrivals()

    def send(self, now: Nanoseconds, node: str, to: tuple[str, str], message: Message) -> None:
        """`message` leaves `node` for a machine of another. Raises MachineError where there is no link."""
        peer, machine = to
        if (node, peer) not in self._free:
            raise MachineError(f"{node} has a message for {peer}/{machine}, and no PCIe link leads there")
        left = max(now, self._free[node, peer]) + serialization_time(link_size(message), self._rate)
        self._free[node, peer] = left
        self._arrivals.expect(left + self._latency, peer, machine, message)

    def wake(self, now: Nanoseconds) -> list[tuple[str, str, Message]]:
        """(node, machine, message) of all that has arrived by `now`."""
        return self._arrivals.wake(now)

    def deadline(self) -> Nanoseconds | None:
        """When the next message arrives."""
        return self._arrivals.deadline()
