"""The whole server over long lives: pauses across many arrivals, many windows, slots used round and round, departures
from every state of a slot, and shapes that no captured graph fits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from testbed.blink.ring import ECHO_MASK
from testbed.blink.slots import INCARNATION_MASK, SlotState, incarnation_of, pack, state_of
from testbed.events.run_events import LineLogged
from testbed.events.schema import (
    BatchChanged,
    DeviceFaulted,
    GraphLaunched,
    GraphSelected,
    RequestServed,
    SlotMoved,
    TokensPublished,
    WindowRelaunched,
)
from tests.testbed.blink.world import World, small


@pytest.fixture(scope="module")
def busy() -> World:
    """One long answer beside sixty short ones that arrive while it runs."""
    world = World(small(context_tokens=1_024, kv_blocks=200, window=50))
    world.submit("long", "x" * 20, max_tokens=500)
    for index in range(60):
        world.run(25 + 9 * (index % 3))
        world.submit(f"r{index}", "x" * (10 + index), max_tokens=1 + index % 13, seed=index)
    world.settle()
    return world


def test_every_arrival_pauses_the_batch_and_every_pause_ends(busy: World) -> None:
    moves = [event for event in busy.of(SlotMoved) if event.request == busy.number("long")]
    inside = [move.after for move in moves[1:-1]]
    assert inside[0] == "decode_processing"
    assert inside[1:] == ["decode_paused", "decode_processing"] * 60
    assert len(busy.tokens("long")) == 500
    assert not busy.of(LineLogged)


def test_nobody_decodes_while_it_is_paused(busy: World) -> None:
    state: dict[int, str] = {}
    for _, _, event in busy.events:
        if isinstance(event, SlotMoved):
            state[event.request] = event.after
        elif isinstance(event, GraphSelected):
            expected = "decode_processing" if event.kind == "decode" else "prefill_processing"
            assert {state[request] for request in event.requests} == {expected}


def test_a_paused_batch_says_so(busy: World) -> None:
    paused = [event for event in busy.of(BatchChanged) if event.paused]
    assert len(paused) >= 60
    assert all(event.running == 0 for event in paused)


def test_windows_end_at_their_limit_one_after_the_other_and_drain(busy: World) -> None:
    relaunched = busy.of(WindowRelaunched)
    assert len(relaunched) >= 500 // 50
    assert [event.window for event in relaunched] == list(range(1, len(relaunched) + 1))
    launched: dict[int, list[int]] = defaultdict(list)
    for event in busy.of(GraphLaunched):
        launched[event.window].append(event.in_window)
    for window, counts in launched.items():
        assert counts == list(range(1, len(counts) + 1))
        assert len(counts) in (49, 50) or window == len(relaunched)
    # A window of 49 made room for a prompt, which needs two launches.
    assert {event.launches for event in relaunched} <= {49, 50}
    gaps = {event.gap for event in relaunched}
    assert gaps == {busy.parameters.tail_launch_cost}


def test_across_a_window_nothing_runs_until_all_is_complete(busy: World) -> None:
    """CUDA's rule: the tail launch waits for the parent and all its children."""
    in_flight, edges = 0, 0
    for _, _, event in busy.events:
        match event:
            case GraphLaunched():
                assert in_flight == 0
                in_flight = 1
            case TokensPublished():
                in_flight = 0
            case WindowRelaunched():
                edges += 1
                assert in_flight == 0
    assert edges


@pytest.mark.parametrize("start", [INCARNATION_MASK - 3, ECHO_MASK - 3, 0])
def test_slots_are_used_round_and_round_and_their_counts_wrap(start: int) -> None:
    world = World(small(slots=4, max_batch=2))
    for slot in range(4):
        world.memory.store(world.layout.state(slot), pack(SlotState.EMPTY, start))
    for index in range(40):
        world.submit(f"r{index}", "x" * (1 + index % 7), max_tokens=1 + index % 5, seed=index)
        if index % 4 == 3:
            world.settle()
    world.settle()
    assert len(world.of(RequestServed)) == 40
    assert all(len(world.tokens(f"r{index}")) == 1 + index % 5 for index in range(40))
    for slot in range(4):
        word = world.memory.load(world.layout.state(slot))
        assert state_of(word) is SlotState.EMPTY
        used = (incarnation_of(word) - start) & INCARNATION_MASK
        assert 5 <= used <= 20
    uses = Counter(
        (event.slot, event.incarnation) for event in world.of(SlotMoved) if event.before == "prefill_pending"
    )
    assert set(uses.values()) == {1}
    world.assert_nothing_is_held()


@pytest.mark.parametrize("state", [state for state in SlotState if state is not SlotState.EMPTY], ids=str)
@pytest.mark.parametrize("beyond", [{}, {"prefix_cache": True}, {"prefill_chunk_tokens": 16}], ids=str)
def test_a_client_that_leaves_in_any_state_of_its_slot_gives_everything_back(
    state: SlotState, beyond: dict[str, int]
) -> None:
    world = World(small(**beyond))
    world.submit("a", "x" * 30, max_tokens=9)
    other = 0
    while state_of(world.memory.load(world.layout.state(0))) is not state:
        # Somebody arrives all the time, since only an arrival pauses a slot.
        if state is SlotState.DECODE_PAUSED and len(world.tokens("a")) > other:
            other += 1
            world.submit(f"other{other}", "y" * 20, max_tokens=2)
        assert world.step()
    world.abandon("a")
    world.settle()
    assert not world.of(DeviceFaulted)
    assert not world.of(LineLogged)
    assert state_of(world.memory.load(world.layout.state(0))) is SlotState.EMPTY
    world.assert_nothing_is_held()


def test_a_shape_that_was_not_captured_takes_the_largest_graph_and_costs_its_batch() -> None:
    cut, whole = World(small(graph_token_budget=400)), World(small())
    for world in (cut, whole):
        for index in range(2):
            world.submit(f"r{index}", "x" * 110, max_tokens=40)
        world.settle()
        assert not world.of(DeviceFaulted)
    chosen = [
        {(event.graph, event.fallback) for event in world.of(GraphSelected) if event.kind == "decode"}
        for world in (cut, whole)
    ]
    assert chosen[0] == {("decode-b2-s128", False), ("decode-b4-s256", True)}
    assert chosen[1] == {("decode-b2-s128", False), ("decode-b2-s256", False)}
    assert cut.now > whole.now
    assert [cut.tokens(f"r{index}") for index in range(2)] == [whole.tokens(f"r{index}") for index in range(2)]


def test_a_smaller_grid_takes_less_memory() -> None:
    whole, cut = small(), small(graph_token_budget=400)
    assert cut.graphs().count < whole.graphs().count
    assert cut.graphs().decode.largest in cut.graphs()


def test_counts_of_a_request_never_go_back(busy: World) -> None:
    counts: dict[int, list[int]] = defaultdict(list)
    for event in busy.of(TokensPublished):
        for request, count in zip(event.requests, event.counts, strict=True):
            counts[request].append(count)
    for each in counts.values():
        assert all(after == before + 1 for before, after in pairwise(each))
