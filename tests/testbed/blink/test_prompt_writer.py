from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from testbed.blink.prompt_writer import Burst, StagedWrite, merge
from testbed.blink.request_tracker import TrackedRequest
from testbed.blink.ring import RingLayout, RingView, tokens_from
from testbed.network.memory_region import PlainMemory
from testbed.serving.requests import Request
from testbed.serving.tokens import ByteVocabulary

LAYOUT = RingLayout(16, 1_024, 1_024)


def placed(number: int, slot: int, start: int, prompt: list[int]) -> TrackedRequest:
    tracked = TrackedRequest(Request(f"r{number}", "", 5), number, prompt, ByteVocabulary())
    tracked.slot, tracked.input_start, tracked.answer_start, tracked.incarnation = slot, start, number * 16, 1
    return tracked


def test_neighbours_travel_together_and_bulk_is_apart_from_control() -> None:
    members = [placed(n, slot=n, start=(n - 1) * 16, prompt=[n] * 10) for n in (1, 2, 3)]
    burst = Burst(members, LAYOUT)
    assert len(burst.writes) == 2
    assert burst.operations == 5
    assert burst.bytes_of == dict.fromkeys((1, 2, 3), 10 * 4 + 64)


def test_strangers_travel_alone() -> None:
    members = [placed(1, slot=1, start=0, prompt=[1] * 10), placed(2, slot=9, start=512, prompt=[2] * 10)]
    assert len(Burst(members, LAYOUT).writes) == 4


def test_what_is_written_is_what_the_scheduler_finds() -> None:
    members = [placed(n, slot=n, start=(n - 1) * 32, prompt=list(range(n, n + 20))) for n in (3, 1, 2)]
    memory = PlainMemory(LAYOUT.size)
    for write in Burst(members, LAYOUT).writes:
        memory.view[write.offset : write.offset + len(write.data)] = write.data
    ring = RingView(memory, LAYOUT)
    for member in members:
        found = ring.descriptor(member.slot, 1)
        assert found.request == member.number
        prompt = ring.prompt(found)
        assert tokens_from(prompt) == member.prompt
        assert zlib.crc32(prompt) == found.prompt_checksum


@given(
    pieces=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 30)), min_size=1, max_size=12),
    gap=st.integers(0, 20),
    shuffle=st.randoms(use_true_random=False),
)
def test_merging_changes_no_byte_that_was_written(pieces: list[tuple[int, int]], gap: int, shuffle: object) -> None:
    writes, offset = [], 0
    for number, (length, distance) in enumerate(pieces, start=1):
        writes.append(StagedWrite(offset, bytes([number]) * length))
        offset += length + distance
    shuffle.shuffle(writes)  # type: ignore[attr-defined]
    plain, merged = bytearray(offset), bytearray(offset)
    for write in writes:
        plain[write.offset : write.offset + len(write.data)] = write.data
    joined = merge(writes, gap)
    for write in joined:
        merged[write.offset : write.offset + len(write.data)] = write.data
    assert merged == plain
    distances = [distance for _, distance in pieces[:-1]]
    assert len(joined) == 1 + sum(distance > gap for distance in distances)
