"""Two soft RNICs as a wire under contract: NIC processes in two network namespaces, whoever made those."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

from emulators.nic_pair import Ends, NicPair
from testbed.experiment.plan import RegionPlan
from testbed.machine import Completion, CompletionStatus, Received, RemoteAddress, Verb
from testbed.network.memory_region import LocalMemory
from tests.conformance.wire_contract import MEMORY_BYTES

REGION = RegionPlan("memory", MEMORY_BYTES, 0x7F00_0000_0000, 0x1234)
NAMES = ("a", "b")
BOUND_S = 30.0
QUIET_S = 0.02


class Cuttable(Ends, Protocol):
    """Namespaces whose links can be taken down and up again from outside the nodes."""

    def set_link(self, index: int, *, up: bool) -> None: ...


class SoftRnicHarness:
    """This process is the software of both nodes."""

    path_mtu = 4096

    def __init__(self, pair: NicPair, namespaces: Cuttable) -> None:
        self.pair = pair
        self._namespaces = namespaces
        self.completions: dict[str, list[Completion]] = {"a": [], "b": []}
        self.received: dict[str, list[Received]] = {"a": [], "b": []}

    def memory(self, node: str) -> LocalMemory:
        return self.pair.memories[node]

    def remote(self, node: str, offset: int = 0) -> RemoteAddress:
        return RemoteAddress(REGION.address + offset, REGION.key)

    def post(self, node: str, verb: Verb) -> None:
        self.pair.verbs[node].post(verb)

    def cut(self, node: str) -> None:
        self._namespaces.set_link(NAMES.index(node), up=False)

    def run(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BOUND_S
        while not until():
            assert time.monotonic() < deadline, f"not done after {BOUND_S} s"
            self._step(0.0005)

    def settle(self) -> None:
        deadline = time.monotonic() + QUIET_S
        while time.monotonic() < deadline:
            self._step(QUIET_S)

    def _step(self, wait_s: float) -> None:
        all_verbs = self.pair.verbs
        if all(verbs.arm() for verbs in all_verbs.values()):
            select.select([verbs.completion_fd for verbs in all_verbs.values()], (), (), wait_s)
        for node, verbs in all_verbs.items():
            for message in verbs.poll():
                if isinstance(message, Completion):
                    self.completions[node].append(message)
                else:
                    self.received[node].append(message)

    @property
    def unharmed(self) -> bool:
        """True if the connection is as it was: no verb failed, none is under way, no message is left."""
        done = [completion for each in self.completions.values() for completion in each]
        return all(completion.status is CompletionStatus.SUCCESS for completion in done) and not any(
            verbs.in_flight for verbs in self.pair.verbs.values()
        )


class Bench:
    """A pair of NICs in these namespaces, which is used again as long as no test has broken it."""

    def __init__(self, namespaces: Cuttable) -> None:
        self._namespaces = namespaces
        self._pair: NicPair | None = None
        self._receives = -1
        self._last: SoftRnicHarness | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_error: object) -> None:
        self._drop()

    def harness(self, receives: int) -> SoftRnicHarness:
        if receives != self._receives or self._last is None or not self._last.unharmed:
            self._drop()
            self._receives = receives
            pair = NicPair(
                self._namespaces, names=NAMES, region=REGION, receives=receives, receive_bytes=MEMORY_BYTES // 32
            )
            self._pair = pair.__enter__()
        assert self._pair is not None
        for memory in self._pair.memories.values():
            memory.view[:] = bytes(MEMORY_BYTES)
        self._last = SoftRnicHarness(self._pair, self._namespaces)
        return self._last

    def _drop(self) -> None:
        if self._pair is not None:
            self._pair.__exit__(None, None, None)
            self._pair = None
        if self._last is not None:
            for index in range(2):
                self._namespaces.set_link(index, up=True)
            self._last = None
