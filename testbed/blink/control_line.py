"""The control line: a cache line of the ring by which scheduler, DPU and the device's owner know of each other's lives.

Four words: the heartbeat that a living scheduler counts up, the life that runs (0 for the first), the life that
somebody asks for, and the number of the last launch. The DPU reads the line by RDMA and asks for a new life by
compare-and-swap; the owner of the device's memory, which outlives every scheduler, sees the question and begins it.
The paper has none of this; the words and their order are our choice. See docs/models/recovery.md.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from testbed.blink.ring import CONTROL, WORD, RingLayout
from testbed.network.memory_region import LocalMemory
from testbed.units import Nanoseconds

_HEARTBEAT, _LIFE, _ASKED, _LAUNCH = range(4)
_LINE = struct.Struct("<4Q")


class Control(NamedTuple):
    """The line as it was read."""

    heartbeat: int
    life: int
    asked: int
    """The life that the DPU wants; as `life` while it wants no other."""
    launch: int


def unpack_control(data: bytes) -> Control:
    """The line from its bytes."""
    return Control(*_LINE.unpack_from(data))


def asked_word(layout: RingLayout) -> int:
    """Offset of the word by which a new life is asked for."""
    return layout.control + _ASKED * WORD


class ControlLine:
    """The line as the GPU's own node sees it."""

    def __init__(self, memory: LocalMemory, layout: RingLayout) -> None:
        self._memory = memory
        self._at = layout.control

    def read(self) -> Control:
        """All of it."""
        return unpack_control(bytes(self._memory.view[self._at : self._at + CONTROL]))

    def beat(self) -> None:
        """One more sign of life."""
        self._memory.fetch_add(self._at + _HEARTBEAT * WORD, 1)

    def note_launch(self, launch: int) -> None:
        """A graph is about to be launched under this number; no later life uses it again."""
        self._memory.store(self._at + _LAUNCH * WORD, launch)

    def restart_asked(self) -> bool:
        """Whether somebody asks for another life than the one that runs."""
        line = self.read()
        return line.asked > line.life

    def begin_life(self) -> int:
        """The owner has ended the old life: the one that was asked for begins. Returns its number."""
        life = self._memory.load(self._at + _ASKED * WORD)
        self._memory.store(self._at + _LIFE * WORD, life)
        return life


class Heart:
    """The scheduler's heartbeat: due every `interval` while an execution runs."""

    def __init__(self, line: ControlLine, interval: Nanoseconds) -> None:
        self._line = line
        self._interval = interval
        self._next: Nanoseconds | None = None

    def start(self, now: Nanoseconds) -> None:
        """An execution begins."""
        self._next = now

    def beat(self, now: Nanoseconds) -> None:
        """Beats if that is due."""
        if self._next is not None and self._next <= now:
            self._line.beat()
            self._next = now + self._interval

    def sooner(self, deadline: Nanoseconds | None) -> Nanoseconds | None:
        """The earlier of the next beat and `deadline`."""
        if deadline is None or self._next is None:
            return self._next if deadline is None else deadline
        return min(self._next, deadline)
