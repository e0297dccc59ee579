from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.blink.ring import (
    DESCRIPTOR,
    DamagedDescriptor,
    Descriptor,
    FinishReason,
    Progress,
    RingLayout,
    RingView,
    check_descriptor,
    pack_progress,
    token_bytes,
    tokens_from,
    unpack_descriptor,
    unpack_progress,
)
from testbed.blink.slots import SlotState, pack
from testbed.network.memory_region import PlainMemory

LAYOUT = RingLayout(64, 1_024, 512)
GOOD = Descriptor(7, 16, 100, 32, 50, 0.5, 0.75, 1 << 63, 1, 0xDEAD, 3)


def test_metadata_of_4096_slots_is_one_read_of_64_kib() -> None:
    layout = RingLayout(4_096, 16, 16)
    assert layout.metadata_size == 64 * 1024
    assert (layout.state(0), layout.progress(0)) == (0, 4_096 * 8)


@given(
    slots=st.integers(1, 5_000), prompts=st.integers(1, 10_000), answers=st.integers(1, 10_000), at=st.floats(0, 0.999)
)
def test_planes_follow_each_other_without_overlap(slots: int, prompts: int, answers: int, at: float) -> None:
    layout = RingLayout(slots, prompts * 16, answers * 16)
    slot = int(at * slots)
    edges = [
        layout.state(0), layout.progress(0), layout.descriptor(0), layout.prompt(0), layout.answer(0),
        layout.extraction(0), layout.extraction(slots),
    ]  # fmt: skip
    assert edges == sorted(edges)
    assert layout.state(slots) == layout.progress(0)
    assert layout.progress(slots) == layout.metadata_size == layout.descriptor(0)
    assert layout.descriptor(slots) == layout.prompt(0)
    assert layout.prompt(layout.input_tokens) == layout.answer(0)
    assert layout.answer(layout.token_tokens) == layout.extraction(0)
    assert layout.extraction(slots) <= layout.size
    assert layout.size % 4_096 == 0
    assert layout.descriptor(slot) % 8 == layout.extraction(slot) % 8 == 0


@pytest.mark.parametrize(
    "sizes", [(0, 16, 16), (1 << 21, 16, 16), (4, 0, 16), (4, 17, 16), (4, 16, 1 << 32), (4, 16, -16)]
)
def test_sizes_that_cannot_be_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        RingLayout(*sizes)


@given(
    count=st.integers(0, (1 << 32) - 1), reason=st.sampled_from(FinishReason), incarnation=st.integers(0, (1 << 48) - 1)
)
def test_a_progress_word_is_its_parts(count: int, reason: FinishReason, incarnation: int) -> None:
    word = pack_progress(count, reason, incarnation)
    assert 0 <= word < 1 << 64
    assert unpack_progress(word) == Progress(count, reason, incarnation & 0xFFFFFF)


def test_an_unknown_reason_reads_as_a_fault() -> None:
    assert unpack_progress(200 << 32 | 5) == Progress(5, FinishReason.FAULT, 0)


def test_a_descriptor_is_64_bytes_and_comes_back() -> None:
    data = GOOD.pack()
    assert len(data) == DESCRIPTOR
    assert unpack_descriptor(data) == GOOD


@given(cut=st.integers(1, DESCRIPTOR - 1), other=st.binary(min_size=DESCRIPTOR, max_size=DESCRIPTOR))
def test_a_torn_descriptor_is_found_out(cut: int, other: bytes) -> None:
    torn = GOOD.pack()[:cut] + other[cut:]
    if torn != GOOD.pack():
        with pytest.raises(DamagedDescriptor):
            unpack_descriptor(torn)


def test_a_descriptor_half_of_an_older_one_is_found_out() -> None:
    older = Descriptor(6, 16, 90, 32, 50, 0.5, 0.75, 1 << 63, 1, 0xBEEF, 2).pack()
    for cut in range(8, DESCRIPTOR, 8):
        with pytest.raises(DamagedDescriptor):
            unpack_descriptor(GOOD.pack()[:cut] + older[cut:])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"incarnation": 2}, "incarnation 2"),
        ({"prompt_tokens": 0}, "input arena"),
        ({"prompt_start": 1_000}, "input arena"),
        ({"prompt_start": (1 << 32) - 1}, "input arena"),
        ({"max_tokens": 0}, "token arena"),
        ({"answer_start": 500}, "token arena"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_a_descriptor_that_lies_is_not_followed(changes: dict[str, Any], problem: str) -> None:
    check_descriptor(LAYOUT, GOOD, 3)
    fields = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    with pytest.raises(DamagedDescriptor, match=problem):
        check_descriptor(LAYOUT, Descriptor(**{**fields, **changes}), 3)


def test_tokens_are_little_endian_words() -> None:
    assert token_bytes([1, 256, 128_000]) == b"\x01\0\0\0\0\1\0\0\x00\xf4\x01\x00"
    assert tokens_from(token_bytes([1, 256, 128_000])) == [1, 256, 128_000]


def test_the_view_finds_slots_prompts_and_answers() -> None:
    memory = PlainMemory(LAYOUT.size)
    ring = RingView(memory, LAYOUT)
    for slot in (3, 60):
        memory.store(LAYOUT.state(slot), pack(SlotState.PREFILL_PENDING, 3))
    assert list(ring.slots_in(SlotState.PREFILL_PENDING)) == [3, 60]
    assert len(ring.slots_in(SlotState.EMPTY)) == 62

    prompt = token_bytes(range(100))
    start = LAYOUT.prompt(16)
    memory.view[start : start + len(prompt)] = prompt
    good = Descriptor(9, 16, 100, 32, 50, 0.5, 0.75, 1, 1, zlib.crc32(prompt), 3)
    memory.view[LAYOUT.descriptor(60) : LAYOUT.descriptor(61)] = good.pack()
    assert ring.descriptor(60, 3) == good
    assert list(ring.request_numbers(ring.slots_in(SlotState.PREFILL_PENDING))) == [0, 9]
    assert tokens_from(ring.prompt(good)) == list(range(100))
    memory.view[start] ^= 1
    with pytest.raises(DamagedDescriptor, match="prompt does not match"):
        ring.prompt(good)

    ring.put_answer(5, 77)
    assert tokens_from(memory.view[LAYOUT.answer(5) : LAYOUT.answer(6)]) == [77]
    ring.publish(60, 1, FinishReason.STOP, 3)
    assert unpack_progress(memory.load(LAYOUT.progress(60))) == (1, FinishReason.STOP, 3)


def test_a_region_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="the ring needs"):
        RingView(PlainMemory(LAYOUT.size - 8), LAYOUT)
