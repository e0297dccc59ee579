"""What leaders of both roles share: the line for the buffer, reads and their queue, letters, lost nodes."""

from __future__ import annotations

from typing import Literal

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.leader_desk import LeaderDesk
from testbed.dualpath.local_messages import BlockArrived, BlocksRead, Piece, ReadBlocks
from testbed.dualpath.mail import Post
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.rounds import ROUNDS
from testbed.dualpath.turn_letters import Abort, Drained, FetchWork, NodeGone, TurnEnded
from testbed.events.kv_events import BufferMeasured
from testbed.machine import Deliver, Effect, Emit

SHAPE = BlockShape(layers=4, tokens=16, token_layer_bytes=8)


def _desk(collectives: Literal["none", "node"] = "none") -> LeaderDesk:
    parameters = DualPathParameters(engines_per_node=4, storage_nics=2, collectives=collectives)
    return LeaderDesk("pe0", "prefill", "sched0", parameters, shape=SHAPE, pages=10)


def _posts(effects: list[Effect]) -> list[Post]:
    return [each.message for each in effects if isinstance(each, Deliver) and isinstance(each.message, Post)]


def _measured(effects: list[Effect]) -> list[BufferMeasured]:
    return [each.event for each in effects if isinstance(each, Emit) and isinstance(each.event, BufferMeasured)]


def test_turns_wait_for_pages_in_line_and_one_that_needs_none_waits_for_nobody() -> None:
    desk = _desk()
    assert desk.ask("a", 7) == ((0, 7),)
    assert desk.effects == []
    assert desk.ask("b", 5) is None
    assert desk.ask("c", 2) is None  # would fit, but not before b
    assert desk.ask("d", 0) == ()
    assert [each.waiting for each in _measured(desk.effects)] == [1, 2]
    assert desk.give_back("a", ((0, 7),)) == [("b", ((0, 5),)), ("c", ((5, 2),))]
    assert _measured(desk.effects)[-1].held == 7 * SHAPE.full_bytes


def test_who_leaves_the_line_lets_those_behind_it_on() -> None:
    desk = _desk()
    desk.ask("a", 7)
    desk.ask("b", 5)
    desk.ask("c", 2)
    desk.effects.clear()
    assert desk.give_back("b", ()) == [("c", ((7, 2),))]
    assert desk.effects == []  # c's leader says how full it is, when it takes them


def test_a_read_goes_by_the_snic_of_its_engine_and_leaves_the_read_queue() -> None:
    desk = _desk()
    desk.fetching.add("a", 3, 100, read_tokens=3 * SHAPE.tokens)
    desk.read("a", "pe1-2", (7, 8, 9), [Piece("buffer", offset, 512) for offset in (0, 512, 4096)], 3)
    (order,) = desk.effects
    assert isinstance(order, Deliver)
    read = order.message
    assert isinstance(read, ReadBlocks)
    assert (read.interface, read.offsets, read.hop, read.request) == ("snic1", (0, 512, 4096), "pe1-2", "a")
    assert desk.reads(read.ticket)
    assert not desk.reads(read.ticket + 1)
    desk.arrived(BlockArrived(read.ticket, 2))
    assert desk.fetching.read_queue == SHAPE.tokens
    assert desk.answered(BlocksRead(read.ticket, failed=(9,))) == "a"
    assert desk.fetching.read_queue == 0
    assert not desk.reads(read.ticket)


def test_what_is_told_comes_back_if_it_is_not_delivered_and_what_is_answered_does_not() -> None:
    desk = _desk()
    desk.tell_leader("de0", Abort("a", "why"))
    desk.answer_leader("de0", Drained("a"))
    desk.tell_ended("a", 2, "why", lost_blocks=True)
    assert _posts(desk.effects) == [
        Post("de0", "leader", Abort("a", "why"), "leader"),
        Post("de0", "leader", Drained("a")),
        Post("sched0", "api", TurnEnded("a", "pe0", 2, "why", lost_blocks=True)),
    ]


def test_effects_are_taken_once_and_the_fetch_comes_behind_them() -> None:
    desk = _desk()
    desk.stage("a", "ended")
    first, *others = desk.take_effects(0)
    assert isinstance(first, Emit)
    assert [type(post.letter) for post in _posts(others)] == [FetchWork]
    assert desk.take_effects(0) == []


def test_the_scheduler_hears_once_of_a_lost_node_and_rounds_where_engines_step_together() -> None:
    desk = _desk()
    for _ in range(2):
        desk.found_lost("de0")
        desk.lost("de0")
    assert _posts(desk.effects) == [Post("sched0", "api", NodeGone("de0"))]
    assert len(desk.effects) == 1
    together = _desk("node")
    together.lost("de0")
    assert together.effects == [Deliver(ROUNDS, NodeGone("de0"))]
