"""The life of a slot: six states, the moves between them, and the 64-bit word that holds a state.

A slot is shared by the DPU and the GPU, and every move is one compare-and-swap on its word: by the NIC for the DPU,
by the CPU's (on a real GPU, the SM's) own instruction for the resident scheduler. This file knows neither of them,
only words. States follow Blink's slot state machine (summary, "ring buffer and slot state machine"). The DPU does
`decode_completed -> empty` (the source does not say who does), withdraws a prompt that nobody has claimed, and a
slot may complete from `prefill_processing` (answers of one token, prompts that cannot be served): our choices.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from testbed.network.memory_region import LocalMemory
from testbed.serving.transitions import IllegalMove, Transitions

STATE_BITS = 8
FLAGS_SHIFT = 8
INCARNATION_SHIFT = 16
INCARNATION_MASK = (1 << 48) - 1
STATE_MASK = (1 << STATE_BITS) - 1

CANCEL = 1 << FLAGS_SHIFT
"""Flag in a word: the DPU asks the scheduler to end this request."""


class SlotState(IntEnum):
    """What a slot is. The number is the low byte of its word; zeroed memory is a ring of empty slots."""

    EMPTY = 0
    PREFILL_PENDING = 1
    PREFILL_PROCESSING = 2
    DECODE_PROCESSING = 3
    DECODE_PAUSED = 4
    DECODE_COMPLETED = 5


class SlotMove(Enum):
    """What may be done to a slot."""

    SUBMIT = "submit"
    WITHDRAW = "withdraw"
    CLAIM = "claim"
    MERGE = "merge"
    PAUSE = "pause"
    RESUME = "resume"
    COMPLETE = "complete"
    RELEASE = "release"


SLOT_TABLE: Transitions[SlotState, SlotMove] = Transitions(
    "slot",
    SlotState.EMPTY,
    {
        (SlotState.EMPTY, SlotMove.SUBMIT): SlotState.PREFILL_PENDING,
        (SlotState.PREFILL_PENDING, SlotMove.WITHDRAW): SlotState.EMPTY,
        (SlotState.PREFILL_PENDING, SlotMove.CLAIM): SlotState.PREFILL_PROCESSING,
        (SlotState.PREFILL_PROCESSING, SlotMove.MERGE): SlotState.DECODE_PROCESSING,
        (SlotState.PREFILL_PROCESSING, SlotMove.COMPLETE): SlotState.DECODE_COMPLETED,
        (SlotState.DECODE_PROCESSING, SlotMove.PAUSE): SlotState.DECODE_PAUSED,
        (SlotState.DECODE_PAUSED, SlotMove.RESUME): SlotState.DECODE_PROCESSING,
        (SlotState.DECODE_PROCESSING, SlotMove.COMPLETE): SlotState.DECODE_COMPLETED,
        (SlotState.DECODE_COMPLETED, SlotMove.RELEASE): SlotState.EMPTY,
    },
)
"""All moves there are."""

DPU_MOVES = frozenset({SlotMove.SUBMIT, SlotMove.WITHDRAW, SlotMove.RELEASE})
"""Moves made by RDMA CMP_SWAP; the GPU makes all others by local compare-and-swap."""

CANCELLABLE = frozenset({SlotState.PREFILL_PROCESSING, SlotState.DECODE_PROCESSING, SlotState.DECODE_PAUSED})
"""States in which the DPU may set the cancel flag."""


class UnreadableWord(ValueError):
    """A word whose low byte names no state: damaged memory, a peer's fault."""

    def __init__(self, word: int) -> None:
        self.word = word
        super().__init__(f"slot word {word:#018x} has no state {word & STATE_MASK}")


def pack(state: SlotState, incarnation: int, flags: int = 0) -> int:
    """The word of a slot. `flags` is 0 or `CANCEL`; `incarnation` is kept modulo 2**48."""
    return state | flags | (incarnation & INCARNATION_MASK) << INCARNATION_SHIFT


def state_of(word: int) -> SlotState:
    """The state in a word. Raises `UnreadableWord`."""
    try:
        return SlotState(word & STATE_MASK)
    except ValueError:
        raise UnreadableWord(word) from None


def incarnation_of(word: int) -> int:
    """How often the slot has been submitted to, so that a word never comes back (ABA)."""
    return word >> INCARNATION_SHIFT


def cancelled(word: int) -> bool:
    """Whether the DPU has asked for the end of this request."""
    return bool(word & CANCEL)


def moved(word: int, move: SlotMove) -> int:
    """The word after `move`: `submit` counts the incarnation up, a slot that empties loses its flags.

    Raises `IllegalMove` if the table has no such move, `UnreadableWord` if the word has no state.
    """
    after = SLOT_TABLE.after(state_of(word), move)
    if move is SlotMove.SUBMIT:
        return pack(after, incarnation_of(word) + 1)
    if after is SlotState.EMPTY:
        return pack(after, incarnation_of(word))
    return (word & ~STATE_MASK) | after


def with_cancel(word: int) -> int:
    """The word with the cancel flag set. Raises ValueError in a state that cannot be cancelled."""
    state = state_of(word)
    if state not in CANCELLABLE:
        raise ValueError(f"a slot that is {state.name.lower()} cannot be cancelled")
    return word | CANCEL


class LostSlot(Exception):
    """A slot is not in the state or incarnation its owner left it in: the peer broke the protocol."""

    def __init__(self, offset: int, word: int, move: SlotMove) -> None:
        self.offset = offset
        self.word = word
        self.move = move
        super().__init__(f"slot word at {offset}: {move.value} found {word:#018x}")


def move_slot(memory: LocalMemory, offset: int, move: SlotMove, incarnation: int) -> tuple[int, int]:
    """Moves a slot in local memory by compare-and-swap; returns the words before and after.

    The DPU may set the cancel flag between our load and our swap, so a swap that lost against a flag is tried
    again; there is one flag, so once is enough. Raises `LostSlot` if the slot is not ours any more.
    """
    word = memory.load(offset)
    for _ in range(2):
        if incarnation_of(word) != incarnation & INCARNATION_MASK:
            raise LostSlot(offset, word, move)
        try:
            desired = moved(word, move)
        except (IllegalMove, UnreadableWord):
            raise LostSlot(offset, word, move) from None
        seen = memory.compare_swap(offset, word, desired)
        if seen == word:
            return word, desired
        word = seen
    raise LostSlot(offset, word, move)
