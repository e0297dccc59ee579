"""The ring: the one structure that DPU and GPU share, as bytes in a memory region of the GPU.

Planes from the region's start: state words, progress words (both together are the metadata that one RDMA READ
brings: 64 KiB at 4,096 slots), descriptors, input arena (prompts), token arena (answers), extraction buffer (what a
graph's sampling leaves for the scheduler), control line (`control_line`). 64-bit words are little-endian. This file
knows offsets and encodings, nobody who reads or writes them. Fields follow the summary ("prompt identity, token
count, generation progress, arena offsets"); sizes and order are our choice, the source has none.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from testbed.network.memory_region import LocalMemory

WORD = 8
TOKEN = 4
"""Bytes of a token id in the arenas (unsigned, little-endian)."""
DESCRIPTOR = 64
CONTROL = 64
"""Bytes of the control line."""
PAGE = 4096

COUNT_MASK = (1 << 32) - 1
REASON_SHIFT = 32
ECHO_SHIFT = 40
ECHO_MASK = (1 << 24) - 1

ANSWER_HEADER = 1
"""Words in front of an answer where prefixes are cached: how many tokens of its prompt were found."""

IGNORE_EOS = 1
"""Descriptor flag: the end-of-sequence token is never drawn."""

_DESCRIPTOR = struct.Struct("<QIIIIffQIIQI")
_CHECKSUM = struct.Struct("<I")


class FinishReason(IntEnum):
    """Why a request ended, as the scheduler writes it beside the count."""

    NONE = 0
    STOP = 1
    LENGTH = 2
    CANCELLED = 3
    DAMAGED = 4
    """Descriptor or prompt did not match its checksum."""
    KV_TOO_SMALL = 5
    """The request needs more KV blocks, or a longer context, than the device has."""
    FAULT = 6
    """The device refused a launch or never answered."""
    INTERRUPTED = 7
    """The scheduler was restarted, and what the ring still had of the request could not be trusted."""


_REASONS = frozenset(FinishReason)


class RingLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where everything lies. Offsets are in bytes from the region's start; arenas are counted in tokens."""

    slots: int
    input_tokens: int
    """Size of the input arena, in token ids."""
    token_tokens: int
    """Size of the token arena, in token ids."""

    def __post_init__(self) -> None:
        """Refuses sizes that would not be aligned or not fit the descriptor's 32-bit fields."""
        if not 0 < self.slots <= 1 << 20:
            raise ValueError(f"slots must be 1 to {1 << 20}, not {self.slots}")
        for name, tokens in (("input_tokens", self.input_tokens), ("token_tokens", self.token_tokens)):
            if not 0 < tokens < 1 << 32 or tokens % 16:
                raise ValueError(f"{name} must be a positive multiple of 16 below 2**32, not {tokens}")

    @property
    def metadata_size(self) -> int:
        """Bytes of state and progress words together, from offset 0."""
        return self.slots * 2 * WORD

    @property
    def size(self) -> int:
        """Bytes of the whole region, whole pages."""
        return -(-(self.control + CONTROL) // PAGE) * PAGE

    def state(self, slot: int) -> int:
        """Offset of a slot's state word."""
        return slot * WORD

    def progress(self, slot: int) -> int:
        """Offset of a slot's progress word."""
        return (self.slots + slot) * WORD

    def descriptor(self, slot: int) -> int:
        """Offset of a slot's descriptor."""
        return self.slots * 2 * WORD + slot * DESCRIPTOR

    def prompt(self, token: int) -> int:
        """Offset of the `token`-th id of the input arena."""
        return self.slots * (2 * WORD + DESCRIPTOR) + token * TOKEN

    def answer(self, token: int) -> int:
        """Offset of the `token`-th id of the token arena."""
        return self.prompt(self.input_tokens) + token * TOKEN

    def extraction(self, lane: int) -> int:
        """Offset of the `lane`-th word of the extraction buffer; a lane is a place in the running batch."""
        return self.answer(self.token_tokens) + lane * WORD

    @property
    def control(self) -> int:
        """Offset of the control line, a whole cache line."""
        return -(-self.extraction(self.slots) // CONTROL) * CONTROL


class Progress(NamedTuple):
    """A progress word, taken apart."""

    generated: int
    """Tokens generated so far."""
    reason: FinishReason
    echo: int
    """Low 24 bits of the slot's incarnation: count and reason belong to that use of the slot."""


def pack_progress(count: int, reason: FinishReason, incarnation: int) -> int:
    """The progress word: one store publishes count, reason and whose they are, so none is seen without the others."""
    return count | reason << REASON_SHIFT | (incarnation & ECHO_MASK) << ECHO_SHIFT


def unpack_progress(word: int) -> Progress:
    """Takes a progress word apart. A reason that is none of ours reads as `FAULT`."""
    reason = word >> REASON_SHIFT & 0xFF
    known = FinishReason(reason) if reason in _REASONS else FinishReason.FAULT
    return Progress(word & COUNT_MASK, known, word >> ECHO_SHIFT)


class DamagedDescriptor(ValueError):
    """A descriptor that cannot be believed; the peer's fault. `problem` says what is wrong with it."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class Descriptor(msgspec.Struct, frozen=True):
    """What the DPU says of a request: 64 bytes, sealed by a checksum of their own."""

    request: int
    prompt_start: int
    """First token id of the prompt in the input arena."""
    prompt_tokens: int
    answer_start: int
    """First place of the answer in the token arena; `max_tokens` places are reserved."""
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    flags: int
    prompt_checksum: int
    """CRC-32 of the prompt's bytes."""
    incarnation: int
    """The slot's incarnation this descriptor was written for."""

    def pack(self) -> bytes:
        """The 64 bytes."""
        body = _DESCRIPTOR.pack(
            self.request, self.prompt_start, self.prompt_tokens, self.answer_start, self.max_tokens,
            self.temperature, self.top_p, self.seed & (1 << 64) - 1, self.flags, self.prompt_checksum,
            self.incarnation, 0,
        )  # fmt: skip
        return body + _CHECKSUM.pack(zlib.crc32(body))


def unpack_descriptor(data: bytes | memoryview) -> Descriptor:
    """A descriptor from its 64 bytes. Raises `DamagedDescriptor` if the seal is broken (a torn write)."""
    body = bytes(data[: _DESCRIPTOR.size])
    (seal,) = _CHECKSUM.unpack_from(data, _DESCRIPTOR.size)
    if zlib.crc32(body) != seal:
        raise DamagedDescriptor("the descriptor does not match its checksum")
    *fields, _reserved = _DESCRIPTOR.unpack(body)
    return Descriptor(*fields)


def check_descriptor(layout: RingLayout, found: Descriptor, incarnation: int) -> None:
    """Raises `DamagedDescriptor` unless it is of this use of the slot and stays inside the arenas."""
    if found.incarnation != incarnation:
        raise DamagedDescriptor(f"the descriptor is of incarnation {found.incarnation}, the slot of {incarnation}")
    if not 0 < found.prompt_tokens <= layout.input_tokens - found.prompt_start:
        raise DamagedDescriptor("the prompt lies outside the input arena")
    if not 0 < found.max_tokens <= layout.token_tokens - found.answer_start:
        raise DamagedDescriptor("the answer lies outside the token arena")
    if not (found.temperature >= 0 and 0 < found.top_p <= 1):
        raise DamagedDescriptor("temperature or top_p is out of range")


def token_bytes(tokens: Sequence[int]) -> bytes:
    """Token ids as the arenas hold them."""
    return np.asarray(tokens, "<u4").tobytes()


def tokens_from(data: bytes | memoryview) -> list[int]:
    """Token ids from the arenas' bytes."""
    return [int(token) for token in np.frombuffer(data, "<u4")]


class RingView:
    """The ring as its own node sees it: live numpy views of every plane, no copies."""

    def __init__(self, memory: LocalMemory, layout: RingLayout) -> None:
        if memory.size < layout.size:
            raise ValueError(f"the region has {memory.size} bytes, the ring needs {layout.size}")
        self.memory = memory
        self.layout = layout
        self.states = memory.words(0, layout.slots)
        self._state_bytes = np.empty(layout.slots, np.uint8)
        self._matches = np.empty(layout.slots, np.bool_)
        self._request_numbers = memory.words(layout.descriptor(0), layout.slots * 8)[::8]
        self.extraction = memory.words(layout.extraction(0), layout.slots)
        self._answers = np.frombuffer(memory.view, "<u4", layout.token_tokens, layout.answer(0))

    def slots_in(self, state: int) -> npt.NDArray[np.int64]:
        """Slots whose state is `state`, ascending: the parallel scan over the state plane."""
        # Cutting whole words to their low byte in one pass is half the price of comparing every eighth byte, and
        # numpy takes 2 µs over an IntEnum.
        np.copyto(self._state_bytes, self.states, casting="unsafe")
        return np.equal(self._state_bytes, int(state), out=self._matches).nonzero()[0]

    def request_numbers(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """What the descriptors of `slots` say are their requests' numbers; unchecked, good for ordering only."""
        return self._request_numbers[slots]

    def descriptor(self, slot: int, incarnation: int) -> Descriptor:
        """The checked descriptor of a slot. Raises `DamagedDescriptor`."""
        offset = self.layout.descriptor(slot)
        found = unpack_descriptor(self.memory.view[offset : offset + DESCRIPTOR])
        check_descriptor(self.layout, found, incarnation)
        return found

    def prompt(self, found: Descriptor) -> memoryview:
        """The prompt's bytes. Raises `DamagedDescriptor` if they do not match the checksum."""
        start = self.layout.prompt(found.prompt_start)
        data = self.memory.view[start : start + found.prompt_tokens * TOKEN]
        if zlib.crc32(data) != found.prompt_checksum:
            raise DamagedDescriptor("the prompt does not match its checksum")
        return data

    def answers(self, start: int, count: int) -> list[int]:
        """`count` token ids of the token arena from place `start`."""
        return [int(token) for token in self._answers[start : start + count]]

    def put_answer(self, place: int, token: int) -> None:
        """Writes one token id into the token arena."""
        self._answers[place] = token

    def publish(self, slot: int, count: int, reason: FinishReason, incarnation: int) -> None:
        """Makes `count` tokens and the reason visible, in one store; the tokens must be in the arena already."""
        self.memory.store(self.layout.progress(slot), pack_progress(count, reason, incarnation))
