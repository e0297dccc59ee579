"""A wire that fails, front ends that race, and a GPU's side that does what it should not."""

from __future__ import annotations

import pytest

from testbed.blink.ring import FinishReason, pack_progress
from testbed.blink.slots import SlotState, incarnation_of, pack
from testbed.events.schema import (
    RequestArrived,
    SlotFound,
    TokensRead,
    VerbFailed,
)
from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    MachineError,
    Message,
    Read,
    UnexpectedMessage,
    Verb,
    Write,
)
from tests.testbed.blink.world import Mischief, World, small

GONE = CompletionStatus.RETRY_EXCEEDED


def failing(kind: type[Verb], *, first: int = 0, last: int = 10**18) -> Mischief:
    return Mischief(fail=lambda now, verb: GONE if isinstance(verb, kind) and first <= now < last else None)


@pytest.mark.parametrize("kind", [Write, CompareSwap, Read])
def test_a_wire_that_fails_at_once_refuses_and_the_machine_goes_on(kind: type[Verb]) -> None:
    world = World(mischief=failing(kind, last=5_000_000))
    world.submit("a")
    world.run(5)
    assert world.refusal("a").reason == "unavailable"
    assert {event.verb for event in world.of(VerbFailed)} == {kind.__name__}
    assert {event.status for event in world.of(VerbFailed)} == {"retry_exceeded"}
    world.run(400)
    world.submit("b")
    world.settle()
    assert len(world.tokens("b")) == 4
    world.assert_nothing_is_held()


@pytest.mark.parametrize("start", range(1, 60, 4))
def test_a_wire_that_fails_for_a_while_loses_no_slot_and_no_extent(start: int) -> None:
    def fail(now: int, verb: Verb) -> CompletionStatus | None:
        return GONE if start * 1_000_000 <= now < (start + 7) * 1_000_000 else None

    world = World(mischief=Mischief(fail=fail))
    for index in range(6):
        world.submit(f"r{index}", max_tokens=5)
    world.run(start + 7)
    world.settle()
    world.submit("after", max_tokens=5)
    world.settle()
    assert len(world.tokens("after")) == 5
    for index in range(6):
        assert len(world.tokens(f"r{index}")) == 5 or world.refusal(f"r{index}").reason == "unavailable"
    world.assert_nothing_is_held()


def test_while_the_gpu_does_not_answer_polls_become_rare() -> None:
    world = World(mischief=failing(Read, first=10_000_000, last=2_000_000_000))
    world.submit("a", max_tokens=100)
    world.run(1_900)
    assert world.refusal("a").reason == "unavailable"
    assert len(world.of(VerbFailed)) < 40
    world.settle()
    world.assert_nothing_is_held()


def test_data_shorter_than_asked_for_is_a_failure() -> None:
    world = World()
    world.submit("a")
    while not any(isinstance(verb, Read) for _, verb in world.wire.posted):
        world.step()
    (_, _, node, read) = world.wire._pending.pop()
    world.hosts[node].complete(world.now, Completion(read.ticket, data=b"short"))
    assert world.refusal("a").reason == "unavailable"


def test_a_completion_nobody_waits_for_is_our_fault() -> None:
    with pytest.raises(MachineError):
        World().front_end.receive(0, Completion(77))


def test_a_message_of_another_kind_is_refused() -> None:
    with pytest.raises(UnexpectedMessage):
        World().front_end.receive(0, Message())


# --- more than one front end, and what the GPU's side may do -------------------------------------------------


def test_a_front_end_with_an_old_cache_loses_the_race_and_takes_another_slot() -> None:
    world = World(front_ends=("dpu0", "gateway0"))
    world.submit("a", max_tokens=30)
    world.run(1)
    world.submit("b", max_tokens=3, node="gateway0")
    world.run(1)
    # Both believe slot 1 to be empty now: the gateway has it, the DPU's cache is older.
    world.submit("c", max_tokens=3)
    world.run(400)
    assert len(world.tokens("a")) == 30
    assert len(world.tokens("b")) == len(world.tokens("c")) == 3


def test_two_front_ends_that_submit_at_once_never_share_a_slot() -> None:
    """Slots are safe. Descriptors and arenas are not: front ends that share a ring for good need parts of their own."""
    world = World(front_ends=("dpu0", "gateway0"))
    world.submit("a", max_tokens=3)
    world.submit("b", max_tokens=3, node="gateway0")
    world.run(2)
    found = [(node, event.slot) for _, node, event in world.events if isinstance(event, SlotFound)]
    assert ("dpu0", 0) in found
    assert ("gateway0", 0) in found
    assert len(found) == 3  # one of the two had to look again
    words = [world.memory.load(world.layout.state(slot)) for slot in range(2)]
    assert [incarnation_of(word) for word in words] == [1, 1]


def test_a_progress_word_that_lies_about_another_use_of_the_slot_is_not_believed() -> None:
    world = World(small(max_batch=1))
    world.submit("a", max_tokens=60)
    world.submit("b", max_tokens=5)
    world.run(20)
    world.memory.store(world.layout.progress(1), pack_progress(5, FinishReason.STOP, 0))
    world.settle()
    assert len(world.tokens("b")) == 5
    assert all(event.request == 1 or event.count == 1 for event in world.of(TokensRead))


def test_a_slot_taken_from_under_a_request_ends_it_with_a_reason() -> None:
    world = World(small(max_batch=1))
    world.submit("a", max_tokens=20)
    world.submit("b", max_tokens=20)
    world.run(20)
    world.memory.store(world.layout.state(1), pack(SlotState.EMPTY, 40))
    world.settle()
    assert world.refusal("b").reason == "internal"
    assert len(world.tokens("a")) == 20
    world.assert_nothing_is_held()


def test_numbers_are_unique_and_ascend() -> None:
    world = World()
    for index in range(5):
        world.submit(f"r{index}", max_tokens=-1 if index % 2 else 2)
    assert [event.request for event in world.of(RequestArrived)] == [1, 2, 3, 4, 5]
