"""The slot tracker: which slots are empty, as far as the DPU knows, without asking the GPU for each prompt.

A local availability cache, refreshed by one RDMA READ of the whole state plane (or by the token reader's metadata
reads, which bring it along), and a circular search that starts at a hint, amortised O(1) (summary, "slot tracker").
The cache may be wrong where several front ends share a ring; the compare-and-swap that follows finds out, and
`give` takes what it saw. This file posts nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.blink.slots import STATE_MASK, SlotState
from testbed.units import Nanoseconds


class Found(NamedTuple):
    """A slot that seems to be empty."""

    slot: int
    word: int
    """Its word, for the compare-and-swap."""
    probes: int
    """Places of the cache that were looked at."""


class SlotTracker:
    """Availability of `slots` slots. Nothing is available before the first refresh."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.refreshed_at: Nanoseconds | None = None
        self._available = bytearray(slots)
        self._words = np.zeros(slots, np.uint64)
        self._held = np.zeros(slots, np.bool_)
        self._touched = np.zeros(slots, np.int64)
        self._clock = 0
        self._hint = 0

    @property
    def clock(self) -> int:
        """The newest mark given out: a READ with a later mark is posted after everything that is known now."""
        return self._clock

    @property
    def free(self) -> int:
        """Slots that the cache believes to be empty."""
        return self._available.count(1)

    def stale(self, now: Nanoseconds, interval: Nanoseconds) -> bool:
        """Whether the last refresh is older than `interval`, or there was none."""
        return self.refreshed_at is None or now - self.refreshed_at > interval

    def take(self) -> Found | None:
        """Takes the next available slot after the hint, or None if the cache knows none."""
        slot = self._available.find(1, self._hint)
        if slot < 0:
            slot = self._available.find(1, 0, self._hint)
        if slot < 0:
            return None
        probes = (slot - self._hint) % self.slots + 1
        self._set(slot, available=False, held=True)
        self._hint = (slot + 1) % self.slots
        return Found(slot, int(self._words[slot]), probes)

    def give(self, slot: int, word: int) -> None:
        """Gives a taken slot back; it is available if `word`, its present word, says that it is empty."""
        self._words[slot] = word
        self._set(slot, available=word & STATE_MASK == SlotState.EMPTY, held=False)

    def begin_refresh(self) -> int:
        """A mark to hand to `refresh` with the READ posted now: what changes meanwhile is newer than its data."""
        self._clock += 1
        return self._clock

    def refresh(self, now: Nanoseconds, mark: int, words: npt.NDArray[np.uint64]) -> None:
        """Takes a whole state plane, except slots that are held and those touched since `mark`."""
        fresh = ~self._held & (self._touched < mark)
        self._words[fresh] = words[fresh]
        available = np.frombuffer(self._available, np.uint8)
        available[fresh] = (words[fresh] & np.uint64(STATE_MASK)) == SlotState.EMPTY
        self.refreshed_at = now

    def _set(self, slot: int, *, available: bool, held: bool) -> None:
        self._available[slot] = available
        self._held[slot] = held
        self._touched[slot] = self._clock
