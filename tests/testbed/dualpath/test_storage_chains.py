"""The store against its promise, whatever the order of letters, transfers and deaths.

A read never returns a version that is not on every live node of the chain, never one below what was read or
acknowledged before it began, and never wrong bytes; every question is answered once.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testbed.dualpath.local_messages import BlockArrived, BlocksRead, BlocksWritten
from tests.testbed.dualpath.storage_world import Store

BLOCKS = [11, 12]


class StoreUnderStress(RuleBasedStateMachine):
    """Writes, reads, single steps of the world, and deaths of all storage nodes but one."""

    @initialize(nodes=st.integers(1, 4), data=st.data())
    def build(self, nodes: int, data: st.DataObject) -> None:
        self.replicas = data.draw(st.integers(1, nodes), "replicas")
        self.store = Store(nodes, self.replicas, clients=2)
        self.number = 0
        self.reads: dict[int, tuple[int, int, int, str]] = {}
        """By ticket: block, version that it must not be below, place, client."""
        self.writes: dict[int, tuple[int, str]] = {}
        self.floor = dict.fromkeys(BLOCKS, 0)
        self.taken = 0
        self.checked = 0
        self.killed = 0

    @rule(block=st.sampled_from(BLOCKS), client=st.sampled_from(["pe0", "pe1"]))
    def write(self, block: int, client: str) -> None:
        self.number += 1
        self.writes[self.number] = (block, f"w{self.number}")
        self.store.write(f"w{self.number}", [block], client, first=self.number, ticket=self.number)

    @rule(block=st.sampled_from(BLOCKS), client=st.sampled_from(["pe0", "pe1"]), copies=st.integers(1, 3))
    def read(self, block: int, client: str, copies: int) -> None:
        """Several copies of one block come from several replicas, as the client spreads them."""
        self.number += 1
        place = 128 + 4 * self.number
        self.reads[self.number] = (block, self.floor[block], place, client)
        self.store.read(f"r{self.number}", [block] * copies, client, first=place, ticket=self.number)

    @precondition(lambda self: self.store.steps())
    @rule(data=st.data(), times=st.integers(1, 12))
    def go_on(self, data: st.DataObject, times: int) -> None:
        for _ in range(times):
            steps = self.store.steps()
            if not steps:
                break
            self.store.step(data.draw(st.sampled_from(steps)))
            self._look()

    @precondition(lambda self: self.killed + 1 < len(self.store.names))
    @rule(data=st.data(), kept=st.none() | st.integers(0, 2))
    def die(self, data: st.DataObject, kept: int | None) -> None:
        living = [name for name in self.store.names if name not in self.store.dead]
        self.killed += 1
        self.store.kill(data.draw(st.sampled_from(living)), letters_kept=kept)

    @precondition(lambda self: not self.store.steps())
    @rule()
    def wait(self) -> None:
        self.store.pass_time()

    @invariant()
    def look(self) -> None:
        if hasattr(self, "store"):
            self._look()

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.store.settle()
        self._look()
        assert not self.reads
        assert not self.writes, "every question is answered"
        for block in BLOCKS:
            found = {self.store.disks[name].chunks.get(block, (0, b"")) for name in self.store.chain(block)}
            assert len(found) <= 1, f"replicas of {block} differ at rest"
            assert all(version >= self.floor[block] for version, _ in found)
            for name in self.store.chain(block):
                assert not self.store.disks[name].drafts

    def _look(self) -> None:
        store = self.store
        for _, block, version in store.served[self.checked :]:
            self._is_everywhere(block, version)
        self.checked = len(store.served)
        for answer in store.answers[self.taken :]:
            if isinstance(answer, BlocksWritten):
                block, request = self.writes.pop(answer.ticket)
                if not answer.failed:
                    version = max(store.write_versions[request, block])
                    self._is_everywhere(block, version)
                    self.floor[block] = max(self.floor[block], version)
            elif isinstance(answer, BlocksRead):
                self._take_read(answer)
            else:
                assert isinstance(answer, BlockArrived)
        self.taken = len(store.answers)

    def _take_read(self, answer: BlocksRead) -> None:
        block, floor, place, client = self.reads.pop(answer.ticket)
        if answer.failed:
            assert not floor or not self.store.chain(block), "a version that was there is gone"
            return
        versions = self.store.read_versions[f"r{answer.ticket}", block]
        assert min(versions) >= floor, "a version went back"
        self.floor[block] = max(self.floor[block], *versions)
        assert self.store.in_memory(place, client) == self.store.image(block)

    def _is_everywhere(self, block: int, version: int) -> None:
        for name in self.store.chain(block):
            disk = self.store.disks[name]
            committed = disk.chunks.get(block, (0, b""))[0]
            assert committed >= version or (block, version) in disk.drafts, f"{name} has no version {version}"


StoreUnderStress.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestStoreUnderStress = StoreUnderStress.TestCase
