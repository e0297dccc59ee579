"""A scheduler that dies anywhere is replaced, and its clients see the streams that they would have seen."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.blink.restoring import CLAIMED
from testbed.blink.slots import SlotState, state_of
from testbed.events.blink_events import SchedulerRestarted, WatchdogCalmed, WatchdogFired, WatchdogGaveUp
from testbed.events.schema import GraphLaunched, SlotMoved
from testbed.serving.requests import Tokens
from tests.testbed.blink.world import MortalMemory, World, small

REQUESTS = (("a", 40, 9), ("b", 7, 1), ("c", 30, 14), ("d", 3, 6), ("e", 55, 11))
"""Name, prompt and answer; the third and later ones arrive while the first are running."""


QUICK: dict[str, Any] = {
    "kv_blocks": 24, "window": 7, "heartbeat_interval": 500_000, "watchdog_patience": 4_000_000,
    "restart_patience": 8_000_000, "restart_cost": 1_000,
}  # fmt: skip
"""A watchdog that needs few polls to bite: these tests kill often."""


def serve(deaths: tuple[int, ...] = (), **changes: Any) -> World:
    """Five requests whose arrivals pause a running batch twice; the first is cancelled by nobody."""
    world = World(small(**{**QUICK, **changes}), deaths=deaths)
    submit_all(world)
    world.settle()
    return world


def submit_all(world: World) -> None:
    for place, (name, prompt, answer) in enumerate(REQUESTS):
        if place in (2, 4):
            world.run(20)
        world.submit(name, "p" * prompt, answer, seed=place)


@cache
def undisturbed() -> dict[str, list[int]]:
    world = serve()
    assert not world.of(WatchdogFired)
    return {name: world.tokens(name) for name, _, _ in REQUESTS}


@cache
def stores_of_a_life() -> int:
    """How often scheduler and device write while they serve `REQUESTS`."""
    probe = World(small(**QUICK), deaths=(1 << 40,))
    memory = probe.scheduler._ring.memory
    assert isinstance(memory, MortalMemory)
    submit_all(probe)
    probe.settle()
    return (1 << 40) - memory.left


def assert_as_undisturbed(world: World) -> None:
    for name, _, _ in REQUESTS:
        assert world.tokens(name) == undisturbed()[name], name
        messages = [m for m in world.answers if getattr(m, "name", None) == name]
        assert isinstance(messages[-1], Tokens)
        assert [m for m in messages if isinstance(m, Tokens) and m.reason] == [messages[-1]]
    world.assert_nothing_is_held()


@pytest.mark.parametrize("kv", ["recomputed", "kept"])
def test_killed_before_any_store_the_streams_are_those_without_a_kill(kv: str, soak: bool) -> None:
    """Every store in a soak, every seventh otherwise; the deaths meet every state that a scheduler owns."""
    total = stores_of_a_life()
    assert total > 100
    found: set[SlotState] = set()
    ended = resumed = 0
    for store in range(0, total, 1 if soak else 7):
        world = serve((store,), restored_kv=kv)
        assert_as_undisturbed(world)
        found |= set(map(state_of, world.left_behind))
        for event in world.of(SchedulerRestarted):
            ended, resumed = ended + event.ended, resumed + event.running + event.waiting
    assert found >= set(CLAIMED)
    assert ended
    assert resumed


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    deaths=st.lists(st.integers(0, 80), min_size=1, max_size=5),
    kv=st.sampled_from(["recomputed", "kept"]),
    window=st.sampled_from([2, 3, 7, 120]),
    mode=st.sampled_from(["fire_and_forget", "tail", "host"]),
)
def test_killed_again_and_again_also_while_restoring(deaths: list[int], kv: str, window: int, mode: str) -> None:
    world = serve(tuple(deaths), restored_kv=kv, window=window, launch_mode=mode)
    assert_as_undisturbed(world)


def test_a_client_that_leaves_while_there_is_no_scheduler_frees_slot_and_blocks() -> None:
    world = World(small(**QUICK))
    world.submit("a", max_tokens=100)
    world.submit("b", max_tokens=12)
    world.run(25)
    world.kill_scheduler()
    world.abandon("a")
    world.settle()
    assert len(world.tokens("b")) == 12
    assert [event.ended for event in world.of(SchedulerRestarted)] == [1]
    world.assert_nothing_is_held()


@pytest.mark.parametrize("what", ["descriptor", "prompt"])
@pytest.mark.parametrize("kv", ["recomputed", "kept"])
def test_what_does_not_match_its_checksum_any_more_ends_with_an_error(what: str, kv: str) -> None:
    world = World(small(**QUICK, restored_kv=kv))
    world.submit("a", max_tokens=50)
    world.submit("b", "other", max_tokens=12)
    world.run(30)
    world.kill_scheduler()
    world.run(1)
    before = world.tokens("a")
    assert before
    slot = world.of(SlotMoved)[0].slot
    place = world.layout.descriptor(slot) if what == "descriptor" else world.layout.prompt(0)
    world.memory.view[place] ^= 1
    world.settle()
    refused = world.refusal("a")
    assert (refused.reason, "restarted" in refused.detail) == ("internal", True)
    assert world.tokens("a") == before, "what was streamed stays, nothing follows it"
    assert len(world.tokens("b")) == 12
    assert [event.interrupted for event in world.of(SchedulerRestarted)] == [1]
    world.assert_nothing_is_held()


def test_what_an_old_graph_has_left_is_not_taken_for_new() -> None:
    """The extraction buffer holds outputs of launches up to the death; a new life counts on."""
    world = World(small(**QUICK))
    world.submit("a", max_tokens=30)
    world.run(60)
    world.kill_scheduler()
    last = world.of(GraphLaunched)[-1].launch
    world.settle()
    launches = [event.launch for event in world.of(GraphLaunched)]
    assert launches == list(range(1, len(launches) + 1))
    assert len(launches) > last


def test_a_scheduler_that_hangs_is_ended_before_the_next_one_begins() -> None:
    """The old one would go on: its words must not meet those of the new one."""
    world = World(small(**QUICK))
    submit_all(world)
    hung = world.hosts.pop("gpu0")
    world.settle()
    assert hung is not world.hosts["gpu0"]
    assert_as_undisturbed(world)
    assert world.of(SchedulerRestarted)


@pytest.mark.parametrize("mode", ["fire_and_forget", "tail", "host"])
def test_it_does_not_bite_while_the_device_computes_for_long(mode: str) -> None:
    """A prefill of 8,000 tokens takes many times the patience."""
    parameters = small(
        context_tokens=8_192, kv_blocks=600, input_arena_tokens=16_384, heartbeat_interval=500_000,
        watchdog_patience=4_000_000, launch_mode=mode,
    )  # fmt: skip
    world = World(parameters)
    world.submit("a", "x" * 8_000, max_tokens=3)
    world.settle()
    assert world.now > 100_000_000
    assert len(world.tokens("a")) == 3
    assert not world.of(WatchdogFired)


def test_an_idle_server_is_left_alone_and_a_death_meanwhile_is_found_by_the_next_request() -> None:
    world = World(small(**QUICK))
    world.run(500)
    world.kill_scheduler()
    world.run(500)
    assert not world.of(WatchdogFired)
    assert not world.wire.posted
    world.submit("a")
    world.settle()
    assert len(world.tokens("a")) == 4
    assert len(world.of(WatchdogFired)) == 1


def test_when_restarts_do_not_help_everybody_is_told_and_served_again_once_they_do() -> None:
    world = World(small(**QUICK, restart_limit=2))
    world.mortal = False
    for name in ("a", "b"):
        world.submit(name, max_tokens=40)
    world.run(30)
    world.kill_scheduler()
    world.settle(["a", "b"], limit_ms=200)
    assert len(world.of(WatchdogFired)) == 2
    assert len(world.of(WatchdogGaveUp)) == 1
    world.submit("c")
    for name in ("a", "b", "c"):
        refused = world.refusal(name)
        assert (refused.reason, refused.detail) == ("unavailable", "the GPU's scheduler does not come back")
    world.mortal = True
    world.run(1_000)
    assert len(world.of(WatchdogCalmed)) == 1
    assert not world.front_end.serving
    world.submit("d")
    world.settle()
    assert len(world.tokens("d")) == 4
    world.assert_nothing_is_held()


def test_two_front_ends_that_miss_it_ask_for_one_new_life() -> None:
    world = World(small(**QUICK), front_ends=("dpu0", "gw0"))
    world.submit("a", max_tokens=30)
    world.submit("b", max_tokens=30, node="gw0")
    world.run(30)
    world.kill_scheduler()
    world.settle()
    assert len(world.of(SchedulerRestarted)) == 1
    assert {len(world.tokens(name)) for name in ("a", "b")} == {30}


def test_a_watchdog_that_is_asleep_lets_a_dead_scheduler_lie() -> None:
    world = World(small(watchdog_patience=0))
    world.submit("a", max_tokens=30)
    world.run(30)
    world.kill_scheduler()
    world.run(1_000)
    assert world.open_requests() == {"a"}
    assert not world.of(WatchdogFired)
