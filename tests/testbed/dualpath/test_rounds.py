"""Engines that step together: every engine in every round, collectives between the halves of a layer, broken groups."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import pytest

from testbed.dualpath.engine_messages import RoundFormed, RoundGoes, RoundOver, RoundWanted
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.round_letters import EngineLoad, RoundAsk, RoundDone, RoundOpen, RoundReady, RoundStart
from testbed.dualpath.rounds import Rounds
from testbed.dualpath.turn_letters import NodeGone
from testbed.events.kv_events import AttentionMeasured, CollectiveFinished, ForwardFinished
from testbed.machine import Deliver, Effects, Emit, Message, UnexpectedMessage
from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.serving.turns import Turn
from testbed.units import MILLISECOND, SECOND
from tests.testbed.dualpath.world import DEFAULTS, SCALE, World, turn


def _with(**changes: object) -> DualPathParameters:
    return msgspec.structs.replace(DEFAULTS, **changes)


def _played(parameters: DualPathParameters, prompts: list[int]) -> tuple[World, list[Turn]]:
    """Turns on all engines in turn; each has half of its prompt in storage."""
    world = World(parameters)
    turns = []
    nodes, engines = parameters.prefill_nodes, parameters.engines_per_node
    for each, prompt in enumerate(prompts):
        one = turn(f"a{each:04}.t000", prompt=prompt, answer=4 + each % 3, stream=each + 1)
        hit = prompt // 32
        world.store(one, hit)
        node, engine = each // engines % nodes, each % engines
        world.assign(one, hit, hit * (each % 2), pe=(f"pe{node}", engine), de=(f"de{node}", engine), at=MILLISECOND)
        turns.append(one)
    assert world.finish(*turns)
    assert all(world.desk.ended(one.name) and not any(world.desk.ended(one.name).values()) for one in turns)
    assert all(len(world.desk.tokens(one.name)) == one.generate_tokens for one in turns)
    world.run(world.simulation.now + SECOND)
    assert world.held() == {}
    return world, turns


def _collectives(world: World) -> dict[tuple[str, int], list[CollectiveFinished]]:
    found = defaultdict(list)
    for _, node, event in world.of(CollectiveFinished):
        assert isinstance(event, CollectiveFinished)
        found[node, event.engine].append(event)
    return found


@pytest.mark.parametrize("group", ["node", "role"])
@pytest.mark.parametrize("landing", ["buffer", "hbm"])
def test_all_engines_of_a_group_take_part_in_every_layer_of_every_round(group: str, landing: str) -> None:
    world, _ = _played(
        _with(collectives=group, prefill_nodes=2, decode_nodes=2, decode_landing=landing, batch_tokens=100),
        [40, 200, 90, 130, 33, 250],
    )
    done = _collectives(world)
    assert len(done) == 8, "four engines of each role"
    for role in ("pe", "de"):
        engines = [events for (node, _), events in done.items() if node.startswith(role)]
        groups = [engines] if group == "role" else [engines[:2], engines[2:]]
        for members in groups:
            orders = [[(each.sequence, each.operation) for each in events] for events in members]
            assert all(order == orders[0] for order in orders)
            operations = [operation for _, operation in orders[0]]
            assert operations == ["dispatch", "combine"] * (len(operations) // 2)
            assert len(operations) % (2 * world.shape.layers) == 0, "whole rounds"


def test_a_dispatch_carries_the_hidden_states_of_its_batch_to_the_experts() -> None:
    world, _ = _played(_with(collectives="node"), [64, 160])
    model = AGENTIC_MODELS["ds-27b"]
    forwards = [event for _, node, event in world.of(ForwardFinished) if node == "pe0"]
    tokens = {event.engine: event.tokens for event in forwards}  # type: ignore[attr-defined]
    assert tokens == {0: 64 - 32, 1: 160 - 80}
    for engine, events in ((key[1], value) for key, value in _collectives(world).items() if key[0] == "pe0"):
        sizes = Counter((each.operation, each.bytes) for each in events)
        dispatched = tokens[engine] * model.hidden * model.experts_per_token // 2
        assert sizes["dispatch", -(-dispatched // SCALE) * SCALE] == 4
        # Combine brings results, two bytes a value, back to the other engine's tokens.
        returned = tokens[1 - engine] * model.hidden * 2 * model.experts_per_token // 2
        assert sizes["combine", -(-returned // SCALE) * SCALE] == 4


def _after_a_first_round(parameters: DualPathParameters, prompts: list[int]) -> World:
    """Turns that come while a round is under way, so that all are in the next one: engine i of pe0 has the i-th."""
    world = World(parameters)
    turns = [turn("a0099.t000", prompt=64, answer=1, stream=99)]
    world.assign(turns[0], 0, 0, at=MILLISECOND)
    for each, prompt in enumerate(prompts):
        turns.append(turn(f"a{each:04}.t000", prompt=prompt, answer=1, stream=each + 1))
        world.assign(turns[-1], 0, 0, pe=("pe0", each), at=10 * MILLISECOND)
    assert world.finish(*turns)
    return world


def _forwards(world: World) -> list[tuple[int, ForwardFinished]]:
    """Of pe0, without the first round's."""
    found = [(now, event) for now, node, event in world.of(ForwardFinished) if node == "pe0"]
    return [
        (now, event) for now, event in found if isinstance(event, ForwardFinished) and "a0099" not in event.turns[0]
    ]


def test_attention_of_a_round_is_measured_once_for_all_engines_idle_ones_too() -> None:
    world = _after_a_first_round(_with(collectives="role", prefill_nodes=2, decode_nodes=2), [320, 50])
    measured = [event for _, _, event in world.of(AttentionMeasured) if isinstance(event, AttentionMeasured)]
    assert [event.step for event in measured] == [1, 2]
    times = measured[1].times
    assert len(times) == 4
    assert min(times[:2]) > 0
    assert times[2:] == (0, 0)
    assert {event.engine: event.attention for _, event in _forwards(world)} == dict(enumerate(times[:2]))


def test_engines_of_a_round_end_their_batches_together_and_the_slowest_says_when() -> None:
    """Design 1.5: with attention data-parallel all GPUs meet before the FFN, so a short batch waits for a long one."""
    parameters = _with(hbm_kv_bytes=200_000_000, decode_buffer_bytes=100_000_000)
    alone = _forwards(_after_a_first_round(parameters, [3200, 50]))
    together = _forwards(_after_a_first_round(msgspec.structs.replace(parameters, collectives="node"), [3200, 50]))
    assert abs(alone[1][0] - alone[0][0]) > 20 * MILLISECOND
    assert abs(together[1][0] - together[0][0]) < MILLISECOND
    assert {event.engine for _, event in together} == {0, 1}


def test_a_group_that_computes_layers_together_shares_all_of_them() -> None:
    world, _ = _played(_with(tensor_parallel=True), [320, 48])
    for (node, _), events in _collectives(world).items():
        operations = Counter(each.operation for each in events)
        assert set(operations) == {"reduce_scatter", "all_gather"}, node
        assert operations["reduce_scatter"] == operations["all_gather"]
    forwards = [event for _, node, event in world.of(ForwardFinished) if node == "pe0"]
    attention = {event.attention for event in forwards}  # type: ignore[attr-defined]
    assert len(attention) == 1, "each engine computes the mean"


@pytest.mark.parametrize("victim", ["pe1", "de1"])
def test_a_group_that_has_lost_a_node_fails_its_turns_and_hangs_nobody(victim: str) -> None:
    world = World(_with(collectives="role", prefill_nodes=2, decode_nodes=2))
    turns = {}
    for each in range(6):
        one = turn(f"a{each:04}.t000", prompt=300, answer=20, stream=each + 1)
        nodes = (f"pe{each % 2}", f"de{each // 2 % 2}")
        world.assign(one, 0, 0, pe=(nodes[0], 0), de=(nodes[1], 1), at=(each * 10 + 1) * MILLISECOND)
        turns[one] = nodes
    at = 55 * MILLISECOND
    world.say(NodeGone(victim), at + 50 * MILLISECOND, *({"pe0", "pe1", "de0", "de1"} - {victim}))
    world.run(at)
    world.wire.cut(victim)
    over = 30 * SECOND
    assert world.run(
        over, lambda: all(set(nodes) - {victim} <= set(world.desk.ended(one.name)) for one, nodes in turns.items())
    )
    for one, nodes in turns.items():
        if victim in nodes:
            assert any(world.desk.ended(one.name).values()), one.name
    world.run(world.simulation.now + 5 * SECOND)
    assert world.held(without=victim) == {}


# --- the machine alone ----------------------------------------------------------------------------------------------


def _said(effects: Effects) -> list[Message]:
    """Letters and messages, without their envelopes."""
    return [getattr(effect.message, "letter", effect.message) for effect in effects if isinstance(effect, Deliver)]


def test_the_head_opens_starts_and_opens_again_while_there_is_work() -> None:
    head = Rounds("pe0", ["pe0", "pe1"], 1, attention=True)
    assert RoundOpen(1) in _said(head.receive(0, RoundAsk("pe1")))
    load, far = EngineLoad(5, 10), EngineLoad(7, 20)
    assert not _said(head.receive(0, RoundFormed(0, load)))
    effects = head.receive(0, RoundReady("pe1", 1, (far,)))
    assert _said(effects) == [RoundStart(1, (load, far)), RoundGoes(1, (load, far))]
    assert Emit(AttentionMeasured(1, (5, 7))) in effects
    assert not _said(head.receive(0, RoundOver(0, more=False)))
    assert RoundOpen(2) in _said(head.receive(0, RoundDone("pe1", 1, more=True)))


def test_work_that_comes_while_a_round_is_under_way_waits_for_the_next() -> None:
    rounds = Rounds("pe0", ["pe0"], 2, attention=True)
    rounds.receive(0, RoundWanted())
    for engine in (0, 1):
        rounds.receive(0, RoundFormed(engine, EngineLoad(1, 1)))
    rounds.receive(0, RoundOver(0, more=False))
    assert not _said(rounds.receive(0, RoundWanted()))
    said = _said(rounds.receive(0, RoundOver(1, more=False)))
    assert [type(each).__name__ for each in said] == ["RoundBegins", "RoundBegins"]


def test_an_ask_that_crosses_the_opening_is_for_that_round() -> None:
    head = Rounds("pe0", ["pe0", "pe1"], 1, attention=False)
    head.receive(0, RoundWanted())
    assert not _said(head.receive(0, RoundAsk("pe1")))
    head.receive(0, RoundFormed(0, EngineLoad()))
    head.receive(0, RoundReady("pe1", 1, (EngineLoad(),)))
    head.receive(0, RoundOver(0, more=False))
    assert not _said(head.receive(0, RoundDone("pe1", 1, more=False)))
    assert RoundOpen(2) in _said(head.receive(0, RoundAsk("pe1")))


@pytest.mark.parametrize(
    "message",
    [
        RoundFormed(0, EngineLoad()), RoundOver(0, more=False), RoundStart(1, ()), RoundOpen(0), RoundAsk("pe0"),
        RoundReady("pe1", 1, ()), RoundDone("pe1", 1, more=False),
    ],
)  # fmt: skip
def test_what_does_not_belong_is_refused(message: Message) -> None:
    member = Rounds("pe1", ["pe0", "pe1"], 1, attention=False)
    with pytest.raises(UnexpectedMessage):
        member.receive(0, message)


def test_a_node_of_another_group_is_none_of_its_business() -> None:
    rounds = Rounds("pe0", ["pe0", "pe1"], 1, attention=False)
    assert not _said(rounds.receive(0, NodeGone("de0")))
    broken = _said(rounds.receive(0, NodeGone("pe1")))
    assert [type(each).__name__ for each in broken] == ["GroupBroken"]
    assert not rounds.receive(0, RoundWanted())
    with pytest.raises(ValueError, match="pe9 is not of the group pe0, pe1"):
        Rounds("pe9", ["pe0", "pe1"], 1, attention=False)
