"""Writes that arrive torn, late or out of order: nobody ever acts on half a prompt, and nothing crashes.

A reliable connection would not do this; a broken NIC, a wrong lane or a peer of another version might. Both ends are
real, the wire is not: it spoils or delays what the front end writes.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.blink.ring import Descriptor, token_bytes
from testbed.blink.slots import SlotState, pack
from testbed.events.run_events import LineLogged
from testbed.events.schema import GraphSelected, SlotClaimed
from testbed.machine import CompareSwap, Verb, Write
from testbed.serving.requests import Tokens
from tests.testbed.blink.world import BASE, Mischief, World, small

PROMPT = "a prompt of some length, forty characters"


def is_prompt(world_layout: Any, verb: Verb) -> bool:
    return isinstance(verb, Write) and verb.remote.address - BASE.address >= world_layout.prompt(0)


LAYOUT = small().layout()


def spoil(which: str, how: Any) -> Mischief:
    def spoilt(_now: int, verb: Write) -> bytes:
        hit = is_prompt(LAYOUT, verb) == (which == "prompt")
        return bytes(how(bytes(verb.data))) if hit else bytes(verb.data)

    return Mischief(spoil=spoilt)


@pytest.mark.parametrize("which", ["prompt", "descriptor"])
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda data: data[: len(data) // 2], id="half"),
        pytest.param(lambda data: b"", id="nothing"),
        pytest.param(lambda data: bytes(len(data) // 2) + data[len(data) // 2 :], id="second half"),
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="one bit"),
        pytest.param(lambda data: data[::-1], id="backwards"),
    ],
)
def test_a_spoilt_prompt_is_never_prefilled_and_its_client_is_told(which: str, how: Any) -> None:
    world = World(mischief=spoil(which, how))
    world.submit("a", PROMPT)
    world.settle()
    assert world.refusal("a").reason == "internal"
    assert not world.of(GraphSelected)
    assert any("checksum" in event.text for event in world.of(LineLogged))
    world.wire.mischief = Mischief()
    world.submit("b", PROMPT)
    world.settle()
    assert len(world.tokens("b")) == 4
    world.assert_nothing_is_held()


def test_a_swap_that_overtakes_its_writes_is_found_out() -> None:
    """The slot turns pending while the prompt is still old: a wire without any order."""
    world = World()
    world.submit("first", "x" * 41, max_tokens=2)
    world.settle()  # slot 0 and its extent hold an old prompt now

    def late(_now: int, verb: Verb) -> int:
        return 50_000_000 if is_prompt(LAYOUT, verb) else 0

    world.wire.mischief = Mischief(delay=late)
    descriptor = Descriptor(9, 0, 41, 0, 4, 1.0, 1.0, 1, 1, zlib.crc32(token_bytes(list(PROMPT.encode()))), 2)
    write = Write(901, "gpu0", remote=BASE.at(LAYOUT.descriptor(0)), data=descriptor.pack())
    swap = CompareSwap(
        902, "gpu0", remote=BASE.at(LAYOUT.state(0)),
        expected=pack(SlotState.EMPTY, 1), desired=pack(SlotState.PREFILL_PENDING, 2),
    )  # fmt: skip
    for verb in (write, swap):
        world.wire._apply(world.now, verb)
    world.run(5)
    assert any("the prompt does not match" in event.text for event in world.of(LineLogged))
    assert world.memory.load(LAYOUT.state(0)) == pack(SlotState.DECODE_COMPLETED, 2)
    assert world.scheduler.kv_blocks_free == world.parameters.kv_blocks


def test_a_pending_slot_with_the_descriptor_of_its_last_use_is_found_out() -> None:
    world = World()
    world.submit("first", PROMPT, max_tokens=2)
    world.settle()
    world.memory.store(LAYOUT.state(0), pack(SlotState.PREFILL_PENDING, 2))
    claimed = len(world.of(SlotClaimed))
    world.run(5)
    assert any("incarnation 1" in event.text for event in world.of(LineLogged))
    assert len(world.of(SlotClaimed)) == claimed


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_lands_in_whatever_shape_only_whole_prompts_are_served(data: st.DataObject) -> None:
    """Each WRITE may be cut, flipped, delayed beyond others or left alone; the swaps come in order or early."""

    def spoilt(_now: int, verb: Write) -> bytes:
        body = bytes(verb.data)
        kind = data.draw(st.sampled_from(["whole", "whole", "cut", "flip"]))
        if kind == "cut":
            return body[: data.draw(st.integers(0, len(body)))]
        if kind == "flip":
            place = data.draw(st.integers(0, len(body) - 1))
            return body[:place] + bytes([body[place] ^ data.draw(st.integers(1, 255))]) + body[place + 1 :]
        return body

    def late(_now: int, verb: Verb) -> int:
        return data.draw(st.sampled_from([0, 0, 3_000, 40_000])) if isinstance(verb, Write) else 0

    world = World(mischief=Mischief(spoil=spoilt, delay=late))
    for index in range(5):
        world.submit(f"r{index}", PROMPT + str(index), max_tokens=3, seed=index)
        world.run(data.draw(st.sampled_from([0.0, 0.01, 9.0])))
    world.settle()
    clean = World()
    for index in range(5):
        clean.submit(f"r{index}", PROMPT + str(index), max_tokens=3, seed=index)
    clean.settle()
    for index in range(5):
        name = f"r{index}"
        if any(isinstance(message, Tokens) and message.name == name for message in world.answers):
            assert world.tokens(name) == clean.tokens(name)
        else:
            assert world.refusal(name).reason == "internal"
    world.assert_nothing_is_held()


def test_garbage_all_over_the_planes_is_survived() -> None:
    world = World()
    world.submit("a", max_tokens=30)
    world.run(30)
    view = world.memory.view
    for offset in range(LAYOUT.state(1), LAYOUT.prompt(0)):
        if not LAYOUT.progress(0) <= offset < LAYOUT.progress(1) and not (
            LAYOUT.descriptor(0) <= offset < LAYOUT.descriptor(1)
        ):
            view[offset] = (offset * 131 + 7) & 0xFF
    world.settle(["a"])
    assert len(world.tokens("a")) == 30
