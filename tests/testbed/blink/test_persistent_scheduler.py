from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest

from testbed.blink.launches import LaunchRefused, SchedulerStarted
from testbed.blink.persistent_scheduler import PersistentScheduler
from testbed.blink.ring import pack_progress
from testbed.blink.scheduler_states import SCHEDULER_TABLE, SchedulerMove, SchedulerState
from testbed.blink.slots import SlotState, pack
from testbed.blink.steps import Step
from testbed.events.run_events import LineLogged
from testbed.events.schema import (
    BatchChanged,
    DeviceFaulted,
    GraphLaunched,
    GraphSelected,
    SlotClaimed,
    SlotMoved,
    TokensPublished,
    TokensSampled,
    WindowRelaunched,
)
from testbed.machine import Message, UnexpectedMessage
from testbed.serving.requests import Refused
from testbed.serving.transitions import IllegalMove
from tests.testbed.blink.world import World, small


@pytest.mark.parametrize(
    ("state", "move"), list(product(SchedulerState, SchedulerMove)), ids=lambda value: value.name.lower()
)
def test_every_move_in_every_state(state: SchedulerState, move: SchedulerMove) -> None:
    if SCHEDULER_TABLE.allows(state, move):
        assert SCHEDULER_TABLE.after(state, move) in SchedulerState
    else:
        with pytest.raises(IllegalMove):
            SCHEDULER_TABLE.after(state, move)


def test_no_state_is_left_over() -> None:
    assert {SCHEDULER_TABLE.first, *SCHEDULER_TABLE.table.values()} == set(SchedulerState)
    assert {state for state, _ in SCHEDULER_TABLE.table} == set(SchedulerState) - {SchedulerState.FAULTED}


def slot_story(world: World, name: str) -> list[str]:
    moves = [event for event in world.of(SlotMoved) if event.request == world.number(name)]
    return [moves[0].before, *(move.after for move in moves)]


def test_a_slot_goes_through_the_states_of_the_summary() -> None:
    world = World()
    world.submit("a", max_tokens=3)
    world.settle()
    assert slot_story(world, "a") == [
        "prefill_pending", "prefill_processing", "decode_processing", "decode_completed",
    ]  # fmt: skip


def test_an_answer_of_one_token_is_complete_after_its_prefill() -> None:
    world = World()
    world.submit("a", max_tokens=1)
    world.settle()
    assert slot_story(world, "a") == ["prefill_pending", "prefill_processing", "decode_completed"]
    assert [event.kind for event in world.of(GraphLaunched)] == ["prefill"]


def test_a_new_prompt_pauses_the_batch_and_joins_it() -> None:
    world = World()
    world.submit("a", max_tokens=12)
    world.run(20)
    world.submit("b", max_tokens=6)
    world.settle()
    assert slot_story(world, "a")[2:5] == ["decode_processing", "decode_paused", "decode_processing"]
    number = world.number("b")
    steps = [event.requests for event in world.of(GraphSelected)]
    assert (number,) in steps  # its own prefill
    assert (world.number("a"), number) in steps  # then decode steps of both
    paused = [event for event in world.of(BatchChanged) if event.paused]
    assert [(event.running, event.paused) for event in paused] == [(0, 1)]


def test_first_come_first_served_and_no_more_than_the_batch() -> None:
    world = World()
    for index in range(10):
        world.submit(f"r{index}", max_tokens=5)
    world.settle()
    claimed = [event.request for event in world.of(SlotClaimed)]
    assert claimed == sorted(claimed)
    assert max(len(event.requests) for event in world.of(GraphSelected)) == 4
    world.assert_nothing_is_held()


def test_a_pause_prefills_so_many_prompts_and_then_decodes() -> None:
    world = World()
    for index in range(9):
        world.submit(f"r{index}", max_tokens=20)
    world.settle()
    kinds = [event.kind for event in world.of(GraphLaunched)]
    runs, length = [], 0
    for kind in kinds:
        if kind == "prefill":
            length += 1
        elif length:
            runs.append(length)
            length = 0
    assert max(runs) == world.parameters.prefills_per_pause == 2


def test_a_running_batch_is_not_starved_by_a_stream_of_prompts() -> None:
    world = World(small(prefills_per_pause=1, max_batch=3))
    for index in range(14):
        world.submit(f"r{index}", max_tokens=2 if index else 30)
    world.settle()
    kinds = [event.kind for event in world.of(GraphLaunched)]
    assert ("prefill", "prefill") not in pairwise(kinds)


def test_windows_of_120_with_a_gap_that_is_the_tail_launch_and_nothing_lost() -> None:
    world = World()
    world.submit("a", max_tokens=200)
    world.submit("b", max_tokens=200)
    world.settle()
    relaunched = world.of(WindowRelaunched)
    assert [event.launches for event in relaunched] == [120]
    assert relaunched[0].gap == world.parameters.tail_launch_cost
    assert max(event.in_window for event in world.of(GraphLaunched)) == 120
    assert {event.window for event in world.of(GraphLaunched)} == {0, 1}
    assert not world.of(DeviceFaulted)
    assert len(world.tokens("a")) == len(world.tokens("b")) == 200


def test_at_the_windows_edge_nothing_overlaps() -> None:
    """CUDA lets a tail launch start when parent and children are complete: launch and scan come after each other."""
    world = World()
    world.submit("a", max_tokens=130)
    world.settle()
    launches = {event.launch: (t, event) for t, _, event in world.events if isinstance(event, GraphLaunched)}
    published = {event.launch: t for t, _, event in world.events if isinstance(event, TokensPublished)}
    inside = launches[61][0] - published[60]
    edge = launches[121][0] - published[120]
    assert inside == 0
    assert edge == world.parameters.tail_launch_cost + world.parameters.scan_cost


def test_a_prompt_that_finds_one_launch_left_waits_for_the_next_window() -> None:
    world = World(small(window=4))
    for index in range(6):
        world.submit(f"r{index}", max_tokens=3)
    world.settle()
    by_window: dict[int, list[str]] = {}
    for event in world.of(GraphLaunched):
        by_window.setdefault(event.window, []).append(event.kind)
    for kinds in by_window.values():
        assert len(kinds) <= 4
        assert kinds[-1] == "decode" or len(kinds) < 4
    world.assert_nothing_is_held()


def test_a_window_of_two_still_serves_everybody() -> None:
    world = World(small(window=2))
    for index in range(5):
        world.submit(f"r{index}", max_tokens=4)
    world.settle()
    assert all(len(world.tokens(f"r{index}")) == 4 for index in range(5))


def test_a_scheduler_that_breaks_the_120_rule_is_caught() -> None:
    world = World(small(window=500))
    world.submit("a", max_tokens=200)
    world.settle()
    (fault,) = world.of(DeviceFaulted)
    assert fault.code == "fireAndForgetLimitExceeded"
    assert world.refusal("a").reason == "unavailable"
    assert len(world.tokens("a")) == 120
    world.assert_nothing_is_held()


class Impatient(PersistentScheduler):
    """A broken scheduler: it launches the next step without watching for the output of the last."""

    def _fire(self, now: int, step: Step, out: list[Any]) -> None:
        super()._fire(now, step, out)
        if step.kind == "decode":
            self._launcher.fire(now, step, out)


def test_a_scheduler_that_relaunches_a_running_graph_is_caught() -> None:
    world = broken(Impatient)
    world.submit("a", max_tokens=5)
    world.settle()
    assert world.of(DeviceFaulted)[0].code == "cudaErrorInvalidValue"
    assert world.refusal("a").reason == "unavailable"


class Forgetful(PersistentScheduler):
    """A broken scheduler: it returns at the window's end without a tail launch."""

    def _relaunch(self, now: int, out: list[Any]) -> None:
        super()._relaunch(now, out)
        del out[-2]


def test_a_scheduler_that_forgets_its_tail_launch_is_caught() -> None:
    world = broken(Forgetful)
    world.submit("a", max_tokens=130)
    world.settle()
    assert world.of(DeviceFaulted)[0].code == "schedulerEnded"
    assert world.refusal("a").reason == "unavailable"


def broken(kind: type[PersistentScheduler]) -> World:
    world = World()
    world.scheduler.__class__ = kind
    return world


def test_after_a_fault_whoever_comes_is_told() -> None:
    world = broken(Impatient)
    for index in range(3):
        world.submit(f"r{index}", max_tokens=5)
    world.settle()
    world.submit("late")
    world.settle()
    assert world.refusal("late").reason == "unavailable"
    assert world.scheduler.state is SchedulerState.FAULTED
    world.assert_nothing_is_held()


def test_a_device_that_never_answers_is_given_up() -> None:
    world = World(small(completion_patience=1_000_000, completion_poll=100_000))
    world.hosts["gpu0"]._accelerator = Silent(world.device)  # a device that loses its work
    world.submit("a")
    world.settle()
    assert world.of(DeviceFaulted)[0].code == "completionTimeout"
    assert world.refusal("a").reason == "unavailable"
    world.assert_nothing_is_held()


class Silent:
    """A device whose graphs never end."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def submit(self, now: int, work: Any) -> Any:
        return ()

    def wake(self, now: int) -> Any:
        return self._device.wake(now)

    def deadline(self) -> Any:
        return self._device.deadline()


def test_a_late_device_is_looked_at_again_and_again_not_for_ever() -> None:
    """The first look is when the cost model expects the end; a slower device is polled at the declared interval."""
    world = World(small(completion_poll=50_000))
    slower = world.device
    original = slower._launch_cost
    slower._launch_cost = original + 400_000
    world.submit("a", max_tokens=2)
    world.settle()
    assert len(world.tokens("a")) == 2
    published = [t for t, _, event in world.events if isinstance(event, TokensPublished)]
    sampled = [t for t, _, event in world.events if isinstance(event, TokensSampled)]
    assert all(0 <= late - end < 50_000 + 3_000 for end, late in zip(sampled, published, strict=True))


def test_a_request_larger_than_the_kv_pool_is_refused_not_looped_over() -> None:
    """Public fault inference-sim#297: a tiny pool made a scheduler preempt for ever."""
    world = World(small(kv_blocks=2))
    world.submit("big", "x" * 40, max_tokens=20)
    world.submit("fits", "x" * 10, max_tokens=20)
    world.settle()
    assert world.refusal("big") == Refused(
        "big", "context_length_exceeded", "the request needs more KV memory than the GPU has"
    )
    assert len(world.tokens("fits")) == 20
    world.assert_nothing_is_held()


def test_a_request_that_does_not_fit_now_waits_and_nobody_overtakes_it() -> None:
    world = World(small(kv_blocks=4))
    world.submit("a", "x" * 20, max_tokens=20)  # 3 blocks of 16
    world.submit("b", "x" * 20, max_tokens=20)
    world.submit("c", "x" * 2, max_tokens=4)  # 1 block: would fit beside a
    world.settle()
    claimed = [event.request for event in world.of(SlotClaimed)]
    assert claimed == [1, 2, 3]
    assert all(event.kv_blocks_free >= 0 for event in world.of(BatchChanged))
    world.assert_nothing_is_held()


def test_a_cancelled_request_leaves_at_the_next_step_and_frees_its_blocks() -> None:
    world = World()
    world.submit("a", max_tokens=200)
    world.submit("b", max_tokens=30)
    world.run(60)
    before = world.scheduler.kv_blocks_free
    world.abandon("a")
    world.run(20)
    assert world.scheduler.kv_blocks_free > before
    assert [member.request for member in world.scheduler.batch.members] == [world.number("b")]
    world.settle()
    assert len(world.tokens("b")) == 30
    world.assert_nothing_is_held()


def test_a_prompt_cancelled_between_claim_and_prefill_is_never_launched() -> None:
    world = World()
    world.submit("a", max_tokens=3)
    world.submit("b", max_tokens=3)
    while not any(event.request == 2 for event in world.of(SlotClaimed)):
        world.step()
    world.abandon("b")
    world.settle()
    assert not any(2 in event.requests for event in world.of(GraphSelected))
    world.assert_nothing_is_held()


def test_a_slot_that_a_peer_takes_away_is_forgotten_and_its_blocks_are_freed() -> None:
    world = World()
    world.submit("a", max_tokens=50)
    world.run(40)
    world.memory.store(world.layout.state(0), pack(SlotState.EMPTY, 99))
    world.memory.store(world.layout.progress(0), pack_progress(0, 0, 99))  # type: ignore[arg-type]
    world.settle()
    assert world.scheduler.kv_blocks_free == world.parameters.kv_blocks
    assert any("was taken from request 1" in event.text for event in world.of(LineLogged))
    assert world.refusal("a").reason == "internal"


def test_eos_stops_unless_it_is_ignored() -> None:
    world = World(text="ab\n")
    world.submit("stops", "xx", max_tokens=50, ignore_eos=False)
    world.submit("goes on", "xx", max_tokens=50, ignore_eos=True)
    world.settle()
    assert world.tokens("stops") == [97, 98, 10, world.vocabulary.eos]
    assert world.text("stops") == "ab\n"
    assert len(world.tokens("goes on")) == 50


@pytest.mark.parametrize("message", [Message(), SchedulerStarted(5)])
def test_a_message_that_does_not_belong_is_refused_and_changes_nothing(message: Message) -> None:
    world = World()
    world.run(1)
    state, deadline = world.scheduler.state, world.scheduler.deadline()
    with pytest.raises(UnexpectedMessage):
        world.scheduler.receive(world.now, message)
    assert (world.scheduler.state, world.scheduler.deadline()) == (state, deadline)


def test_a_second_refusal_says_nothing_new() -> None:
    world = World()
    world.run(1)
    world.scheduler.receive(world.now, LaunchRefused(1, "x", "y"))
    assert world.scheduler.receive(world.now, LaunchRefused(0, "x", "y")) == []


def test_woken_early_it_does_nothing() -> None:
    world = World()
    world.run(1)
    deadline = world.scheduler.deadline()
    assert deadline is not None
    assert list(world.scheduler.wake(deadline - 1)) == []


def test_an_idle_scheduler_slows_its_scans_down_to_a_bound_and_claims_within_it() -> None:
    world = World()
    world.run(5)
    limit = world.parameters.idle_scan_limit
    deadline = world.scheduler.deadline()
    assert deadline is not None
    assert 0 < deadline - world.now <= limit
    world.submit("a")
    world.settle()
    written = next(t for t, _, event in world.events if type(event).__name__ == "PromptWritten")
    claimed = next(t for t, _, event in world.events if isinstance(event, SlotClaimed))
    assert 0 < claimed - written <= limit + 2_000
