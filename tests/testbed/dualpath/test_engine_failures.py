"""What goes wrong between engines: wrong bytes, lost nodes, aborts at any moment, memory that can never do.

However a turn ends, both sides that live say so once, and all memory is free (serving rows 25, 26, 31, 32).
"""

from __future__ import annotations

import random

import msgspec
import pytest

from testbed.dualpath.blocks import block_ids
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.turn_letters import Abort, NodeGone
from testbed.events.kv_events import BlockRejected, TurnStage
from testbed.machine import Message, UnexpectedMessage
from testbed.serving.turns import Turn
from testbed.units import MILLISECOND, SECOND
from tests.testbed.dualpath.world import DEFAULTS, World, turn


def _with(**changes: object) -> DualPathParameters:
    return msgspec.structs.replace(DEFAULTS, **changes)


@pytest.mark.parametrize(
    ("changes", "side", "reason"),
    [
        ({"prefill_buffer_bytes": 2_000_000}, "pe0", "its 12 hit blocks are more than the PE buffer holds"),
        ({"decode_buffer_bytes": 4_000_000}, "de0", "its 13 blocks are more than the DE buffer holds"),
        ({"hbm_kv_bytes": 3_000_000}, "pe0", "its KV is larger than the engine's HBM"),
        ({"hbm_kv_bytes": 4_700_000}, "de0", "its KV of 13 blocks is larger than the engine's HBM"),
    ],
)
def test_a_turn_larger_than_a_memory_fails_at_once_and_others_go_on_known_faults_25_and_32(
    changes: dict[str, int], side: str, reason: str
) -> None:
    world = World(_with(**changes))
    large = turn("a0000.t000", prompt=200, answer=3)
    small = turn("a0001.t000", prompt=40, answer=3, stream=2)
    world.store(large, 12)
    world.assign(large, 12, 12)
    world.assign(small, 0, 0, at=MILLISECOND)
    assert world.finish(large, small, until=SECOND)
    assert world.desk.ended(large.name)[side] == reason
    assert not world.desk.ended(large.name)["pe0"] or world.desk.ended(large.name)["de0"], "the other side heard of it"
    assert world.desk.ended(small.name) == {"pe0": "", "de0": ""}
    world.run(2 * SECOND)
    assert world.held() == {}


@pytest.mark.parametrize("here", [5, 0])
def test_a_block_that_no_replica_can_give_ends_its_turn(here: int) -> None:
    one = turn(prompt=100, answer=3)
    world = World()
    world.store(one, 4)
    world.assign(one, 5, here)
    assert world.finish(one, until=SECOND)
    reader = "pe0" if here else "de0"
    assert world.desk.ended(one.name)[reader] == "storage has lost 1 of its blocks"
    assert not world.desk.tokens(one.name)
    world.run(2 * SECOND)
    assert world.held() == {}


@pytest.mark.parametrize("here", [5, 0])
def test_nothing_is_computed_on_wrong_bytes_whatever_damaged_them(here: int) -> None:
    """A bit of a hit flips in the host buffer after storage has checked it: the engine finds it, layer by layer."""
    one, other = turn(prompt=100, answer=3), turn("a0001.t000", prompt=100, answer=3, stream=2)
    world = World()
    world.store(one, 5)
    world.store(other, 5)
    world.assign(one, 5, here)
    world.assign(other, 5, here)
    node = "pe0" if here else "de0"
    buffer = world.memories[node, "buffer"].view
    stamp = block_ids(one.prompt, 16)[3].to_bytes(8, "little") + (2).to_bytes(2, "little")

    ready = TurnStage(one.name, "ready")
    assert world.run(SECOND, lambda: any(event == ready for _, _, event in world.events))
    buffer[bytes(buffer).index(stamp) + 30] ^= 1
    assert world.finish(one, other, until=2 * SECOND)
    assert world.desk.ended(one.name)["pe0"] == "a wrong block has reached pe0.hbm0"
    assert world.desk.ended(other.name) == {"pe0": "", "de0": ""}
    (rejected,) = [event for _, _, event in world.of(BlockRejected)]
    assert isinstance(rejected, BlockRejected)
    assert "its checksum does not fit its bytes" in rejected.reason
    assert not world.desk.tokens(one.name)
    world.run(3 * SECOND)
    assert world.held() == {}


def test_kv_damaged_while_it_waits_for_decode_is_found_when_it_lands() -> None:
    one = turn(prompt=100, answer=3)
    world = World(_with(decode_landing="buffer"))
    world.assign(one, 0, 0)
    buffer = world.memories["de0", "buffer"].view
    stamp = block_ids(one.prompt, 16)[0].to_bytes(8, "little") + (0).to_bytes(2, "little")

    def damaged() -> bool:
        at = bytes(buffer).find(stamp)
        if at >= 0:
            buffer[at + 20] ^= 0x80
        return at >= 0

    assert world.run(SECOND, damaged)
    assert world.finish(one, until=2 * SECOND)
    assert world.desk.ended(one.name) == {"pe0": "", "de0": "a wrong block has reached de0.hbm0"}
    assert world.held() == {}


def _drawn(world: World, seed: int, count: int = 24) -> dict[Turn, tuple[str, str]]:
    """Turns of all sizes on two nodes of each side, half of their hits read on either."""
    draw = random.Random(seed)
    turns = {}
    for each in range(count):
        prompt = draw.randrange(1, 300)
        one = turn(f"a{each:04}.t000", prompt=prompt, answer=draw.randrange(1, 25), stream=each + 1)
        hit = draw.randrange((prompt - 1) // 16 + 1)
        world.store(one, hit)
        pe, de = draw.choice(["pe0", "pe1"]), draw.choice(["de0", "de1"])
        here = draw.choice([0, hit, hit // 2])
        at = draw.randrange(150 * MILLISECOND)
        world.assign(one, hit, here, at=at, pe=(pe, draw.randrange(2)), de=(de, draw.randrange(2)))
        turns[one] = (pe, de)
    return turns


VARIANTS: dict[str, dict[str, object]] = {
    "chunks": {"batch_tokens": 37, "chunk_tokens": 5},
    "hbm": {"decode_landing": "hbm"},
    "tight": {"prefill_buffer_bytes": 8_000_000, "decode_buffer_bytes": 12_000_000, "hbm_kv_bytes": 11_000_000},
}


def _world(variant: str) -> World:
    return World(_with(prefill_nodes=2, decode_nodes=2, storage_nodes=3, replicas=2, **VARIANTS[variant]))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("victim", ["pe0", "de1", "storage0"])
@pytest.mark.parametrize("at", [20 * MILLISECOND, 120 * MILLISECOND])
def test_a_node_that_dies_takes_its_own_turns_with_it_and_no_others(variant: str, victim: str, at: int) -> None:
    """Cut off at a moment, said to be gone 50 ms later: nobody waits for ever, and all memory of the others is free.

    A storage node takes no turn with it at all: its replicas serve.
    """
    world = _world(variant)
    turns = _drawn(world, seed=at)
    if not victim.startswith("storage"):
        others = [node for node in ("pe0", "pe1", "de0", "de1") if node != victim]
        world.say(NodeGone(victim), at + 50 * MILLISECOND, *others)
    world.run(at)
    world.wire.cut(victim)

    def over() -> bool:
        return all(set(nodes) - {victim} <= set(world.desk.ended(one.name)) for one, nodes in turns.items())

    assert world.run(30 * SECOND, over)
    for one, nodes in turns.items():
        if victim not in nodes:
            assert world.desk.ended(one.name) == dict.fromkeys(nodes, "")
            assert len(world.desk.tokens(one.name)) == one.generate_tokens
    world.run(world.simulation.now + 5 * SECOND)
    assert world.held(without=victim) == {}


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("variant", VARIANTS)
def test_turns_that_are_aborted_at_any_moment_leave_nothing(variant: str, soak: bool) -> None:
    """Before they came, in the middle, after their end; told to one side or to both."""
    for seed in range(60 if soak else 2):
        _abort_many(variant, seed)


def _abort_many(variant: str, seed: int) -> None:
    world = _world(variant)
    turns = _drawn(world, seed)
    draw = random.Random(seed)
    aborted = set()
    for one, nodes in turns.items():
        if draw.random() < 0.6:
            aborted.add(one)
            told = draw.choice([nodes[:1], nodes[1:], nodes])
            world.say(Abort(one.name, "told to"), draw.randrange(250 * MILLISECOND), *told)
    assert world.finish(*turns)
    failed = {one for one in turns if any(world.desk.ended(one.name).values())}
    assert failed
    assert failed <= aborted
    for one in set(turns) - failed:
        assert len(world.desk.tokens(one.name)) == one.generate_tokens
    stages = [event for _, _, event in world.of(TurnStage) if isinstance(event, TurnStage) and event.stage == "failed"]
    assert {event.turn for event in stages} == {one.name for one in failed}
    world.run(world.simulation.now + SECOND)
    assert world.held() == {}


def test_machines_refuse_what_they_cannot_take_and_change_nothing() -> None:
    world = World()
    world.run(MILLISECOND)
    for node in ("pe0", "de0"):
        for name in ("leader", "engine0"):
            machine = world.machines[node][name]
            with pytest.raises(UnexpectedMessage):
                machine.receive(0, _Stranger())
    assert world.held() == {}


class _Stranger(Message, frozen=True):
    """A message that nobody knows."""


def test_a_buffer_without_a_page_for_a_turn_is_refused_when_the_node_is_made() -> None:
    with pytest.raises(ValueError, match="decode_buffer_bytes holds 2 blocks, of which 2 are kept for persisting"):
        World(_with(decode_buffer_bytes=800_000)).run(1)
