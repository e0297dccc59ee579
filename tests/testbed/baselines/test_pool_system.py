"""The DRAM pool in a whole system: where hits are read, what is kept, and that nothing is left over."""

from __future__ import annotations

import pytest

from testbed.baselines.pool_client import POOL
from testbed.events.client_events import RequestFailed, RequestFinished
from testbed.units import SECOND
from tests.testbed.baselines.pool_world import PoolWorld

FULL_BLOCK = 16 * 30 * 788
"""True bytes of a Full Block here."""
LARGE = f"dram_pool_bytes = {2000 * FULL_BLOCK}"


def nothing_left(world: PoolWorld, *lost: str) -> None:
    """Conservation at drain (known fault 26): no question open, nothing pinned, no more slots than there are."""
    assert world.scheduler.directory.unfinished == 0
    assert not any(client.unfinished for client in world.clients(*lost).values())
    assert world.scheduler.unfinished == 0


def answered(world: PoolWorld) -> int:
    assert not world.of(RequestFailed)
    return len(world.of(RequestFinished))


def test_a_pool_that_is_large_enough_spares_storage_all_reads() -> None:
    world = PoolWorld(LARGE)
    assert world.run()
    assert answered(world) == 20
    assert world.blocks("pe1-2") == 0
    assert world.blocks("pool-remote") > 0
    assert world.blocks("pool-local") > 0
    assert world.blocks("persist-write") > 0
    assert not world.rejected()
    nothing_left(world)


@pytest.mark.parametrize("slots", [0, 3, 12, 2000])
def test_known_fault_28_every_hit_is_read_once_from_one_place(slots: int) -> None:
    """LMCache#2106, PR #2091: loads are never negative, and what is external is hits without local ones."""
    squeeze = f"dram_pool_squeeze_bytes = {(2000 - slots) * FULL_BLOCK}"
    world = PoolWorld(LARGE, squeeze)
    assert world.run()
    assert answered(world) == 20
    for placed in world.placed():
        read = {hop: world.blocks(hop, placed.turn) for hop in ("pool-local", "pool-remote", "pe1-2")}
        assert sum(read.values()) == placed.hit_tokens // 16, (placed.turn, read)
    assert (world.blocks("pe1-2") == 0) == (slots == 2000)
    used = world.scheduler.directory.used
    assert all(count <= slots for count in used.values())
    nothing_left(world)


def test_a_pool_that_is_squeezed_to_nothing_reads_from_storage_alone() -> None:
    world = PoolWorld(LARGE, f"dram_pool_squeeze_bytes = {2000 * FULL_BLOCK}")
    assert world.run()
    assert world.blocks("pool-local") == world.blocks("pool-remote") == 0
    assert world.blocks("pe1-2") == sum(placed.hit_tokens for placed in world.placed()) // 16


def test_affinity_keeps_an_agent_where_its_prefix_is() -> None:
    world = PoolWorld(LARGE, "affinity_slack_tokens = 1_000_000")
    assert world.run()
    homes: dict[str, set[str]] = {}
    for placed in world.placed():
        agent, _, number = placed.turn.partition(".")
        # The first turn has no prefix, and the second one's lies with the decode node that made it.
        if int(number[1:]) > 0:
            homes.setdefault(agent, set()).add(placed.prefill_node)
    assert {len(nodes) for nodes in homes.values()} == {1}


def test_without_affinity_prompts_go_round_and_their_kv_is_read_remotely() -> None:
    # Three agents on four engines: each goes round all of them.
    near = PoolWorld(LARGE, "affinity_slack_tokens = 1_000_000", agents=3)
    far = PoolWorld(LARGE, 'placement = "round_robin"', agents=3)
    assert near.run()
    assert far.run()
    assert far.blocks("pool-remote") > near.blocks("pool-remote")
    assert {placed.prefill_node for placed in far.placed()} == {"pe0", "pe1"}


def test_a_damaged_copy_in_the_pool_is_found_and_read_from_storage() -> None:
    world = PoolWorld(LARGE)
    world.run(done=lambda: world.blocks("pool-remote") > 0)
    for (_, region), memory in world.memories.items():
        if region == POOL:
            memory.view[:] = bytes(byte ^ 0x5A for byte in memory.view)
    assert world.run()
    assert answered(world) == 20
    assert world.rejected()
    assert {event.where.partition(".")[2] for event in world.rejected()} == {POOL}
    assert world.blocks("pe1-2") == len(world.rejected())
    nothing_left(world)


@pytest.mark.parametrize("node", ["pe1", "de1"])
def test_a_node_that_dies_takes_its_part_of_the_pool_along_and_no_turn_hangs(node: str) -> None:
    world = PoolWorld(LARGE, "decode_nodes = 2", "lost_after_periods = 20")
    world.run(done=lambda: world.blocks("pool-remote") > 0)
    world.wire.cut(node)
    world.simulation.lose(node)
    assert world.run(world.simulation.now + 120 * SECOND)
    assert world.agents.done
    assert node not in world.scheduler.directory.used
    # NICs give up a peer that does not answer only after all their retries.
    world.simulation.run(world.simulation.now + 2 * SECOND)
    nothing_left(world, node)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = PoolWorld(LARGE), PoolWorld(LARGE)
    assert first.run()
    assert second.run()
    assert first.events == second.events
