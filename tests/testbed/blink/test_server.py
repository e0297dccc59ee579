"""The whole server, DPU and GPU, over an in-memory wire: the thirteen steps, determinism, a full ring."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from testbed.blink.parameters import BlinkParameters
from testbed.blink.slots import SlotState
from testbed.events.run_events import LineLogged
from testbed.events.schema import (
    BLINK_STEPS,
    DeviceFaulted,
    GraphLaunched,
    PromptWritten,
    RequestServed,
    SlotMoved,
    TokensPublished,
    TokensRead,
    TokensSampled,
)
from tests.testbed.blink.world import World, small


def mixed_load(world: World, count: int = 14) -> None:
    """Arrivals that meet an idle server, a running batch, a pause and a full batch."""
    for index in range(count):
        world.submit(f"r{index}", "prompt " * (1 + index % 5), max_tokens=1 + (index * 7) % 23, seed=index)
        world.run((index % 4) * 3.1)
    world.settle()


@pytest.fixture(scope="module")
def served() -> World:
    world = World()
    mixed_load(world)
    return world


def test_each_request_takes_the_thirteen_steps_in_order(served: World) -> None:
    for number in range(1, 15):
        story = served.story(number)
        first = {}
        for step, kind in BLINK_STEPS.items():
            places = [place for place, (_, _, event) in enumerate(story) if type(event) is kind]
            assert places, f"request {number} has no step {step}"
            first[step] = places[0]
        assert list(first.values()) == sorted(first.values()), f"request {number}: {first}"


def test_the_steps_of_the_gpu_are_on_the_gpu_and_the_others_on_the_dpu(served: World) -> None:
    gpu = {BLINK_STEPS[step] for step in range(6, 11)}
    for _, node, event in served.events:
        if type(event) in BLINK_STEPS.values():
            assert node == ("gpu0" if type(event) in gpu else "dpu0")


def test_every_token_is_sampled_published_read_and_streamed_once(served: World) -> None:
    for number in range(1, 15):
        sampled: list[int] = []
        for event in served.of(TokensSampled):
            sampled += [token for request, token in zip(event.requests, event.tokens, strict=True) if request == number]
        counts = [
            count
            for event in served.of(TokensPublished)
            for request, count in zip(event.requests, event.counts, strict=True)
            if request == number
        ]
        assert counts == list(range(1, len(sampled) + 1))
        reads = [event for event in served.of(TokensRead) if event.request == number]
        assert [event.first for event in reads] == [sum(e.count for e in reads[:i]) for i in range(len(reads))]
        assert served.tokens(f"r{number - 1}") == sampled


def test_text_is_the_tokens_text(served: World) -> None:
    for index in range(14):
        spelt = b"".join(served.vocabulary.token_bytes(token) for token in served.tokens(f"r{index}"))
        assert served.text(f"r{index}") == spelt.decode(errors="replace")


def test_slots_move_only_by_the_table_and_come_back_empty(served: World) -> None:
    for slot in range(16):
        moves = [event for event in served.of(SlotMoved) if event.slot == slot]
        for earlier, later in pairwise(moves):
            if earlier.incarnation == later.incarnation:
                assert earlier.after == later.before
            else:
                assert (earlier.after, later.before) == ("decode_completed", "prefill_pending")
                assert later.incarnation > earlier.incarnation
    states = served.memory.words(0, 16).view("u1")[::8]
    assert set(states) == {SlotState.EMPTY}


def test_at_drain_everything_lent_out_has_come_back(served: World) -> None:
    served.assert_nothing_is_held()
    assert len(served.of(RequestServed)) == 14
    assert not served.of(DeviceFaulted)
    assert not served.of(LineLogged)


def test_the_same_seed_twice_is_the_same_run() -> None:
    one, two = World(), World()
    mixed_load(one)
    mixed_load(two)
    assert one.events == two.events
    assert one.answers == two.answers


def test_a_requests_tokens_do_not_depend_on_its_company() -> None:
    alone = World()
    alone.submit("r", "prompt ", max_tokens=20, seed=77)
    alone.settle()
    crowded = World()
    for index in range(7):
        crowded.submit(f"other{index}", max_tokens=9, seed=index)
    crowded.run(11)
    crowded.submit("r", "prompt ", max_tokens=20, seed=77)
    crowded.settle()
    assert alone.tokens("r") == crowded.tokens("r")


def test_another_seed_says_something_else() -> None:
    world = World()
    for seed in range(4):
        world.submit(f"r{seed}", "prompt ", max_tokens=60, seed=seed)
    world.settle()
    assert len({tuple(world.tokens(f"r{seed}")) for seed in range(4)}) == 4


def test_a_ring_of_4096_takes_4096_and_refuses_the_next() -> None:
    world = World(small(slots=4_096, input_arena_tokens=4_096 * 16, token_arena_tokens=4_096 * 16, max_batch=64))
    for index in range(4_100):
        world.submit(f"r{index}", "hi", max_tokens=1)
    world.run(0.5)
    assert [message.reason for message in world.answers if hasattr(message, "detail")] == ["ring_full"] * 4
    assert {event.slot for event in world.of(PromptWritten)} == set(range(4_096))
    world.abandon("r4095")
    world.run(1)
    world.submit("next", "hi", max_tokens=1)
    world.run(0.5)
    assert [event.slot for event in world.of(PromptWritten)][-1] == 4_095


def test_times_are_those_of_the_table() -> None:
    """One request alone: prefill of 128 tokens, then decode steps of batch 1, each with its launch and one scan."""
    world = World()
    world.submit("a", "x" * 100, max_tokens=5)
    world.settle()
    cost = world.device._engine.cost_model
    launched = [(t, event) for t, _, event in world.events if isinstance(event, GraphLaunched)]
    published = [t for t, _, event in world.events if isinstance(event, TokensPublished)]
    for place, ((start, event), end) in enumerate(zip(launched, published, strict=True)):
        graph = cost.prefill(128) if event.kind == "prefill" else cost.decode(1, 100 + place)
        assert end - start == 2_000 + graph.duration + world.parameters.scan_cost


@pytest.mark.parametrize(
    "changes",
    [
        {"task_pool": 1},
        {"poll_work_cap": 1},
        {"burst_window": 0, "tokenise_per_token": 0},
        {"burst_prompts": 1, "prefills_per_pause": 1},
        {"max_batch": 1},
        {"coalesce_gap_bytes": 0},
        {"coalesce_gap_bytes": 1 << 20},
        {"idle_scan_limit": 0},
        {"fire_and_forget_cost": 0, "tail_launch_cost": 0, "window": 2},
        {"poll_interval_min": 20_000, "poll_interval_max": 50_000_000},
    ],
    ids=str,
)
def test_parameters_change_times_never_tokens(changes: dict[str, Any], served: World) -> None:
    world = World(small(**changes))
    mixed_load(world)
    assert [world.tokens(f"r{index}") for index in range(14)] == [served.tokens(f"r{index}") for index in range(14)]
    world.assert_nothing_is_held()


@pytest.mark.parametrize("model", ["phi-4-15b", "qwen-3-32b", "qwen-3-30b-a3b"])
def test_every_model_serves(model: str) -> None:
    world = World(BlinkParameters(model=model, kv_blocks=200, slots=64, max_batch=8, context_tokens=512))
    world.submit("a", max_tokens=3)
    world.settle()
    assert len(world.tokens("a")) == 3
