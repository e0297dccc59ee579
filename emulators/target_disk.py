"""A storage node's real disk: the accelerator whose chunks are files of a storage target, and whose time is measured.

The same contract as the modelled disk (`testbed.dualpath.disk`, one conformance suite for both). Each operation blocks
this process while the disk works, as a single queue would; between two turns of the node's loop it does as many as
fit into `TURN`, one at least, so that letters and transfers are not kept waiting. It decides nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from emulators.storage_target import DamagedChunk, NoChunk, StaleVersion, StorageFull, StorageTarget
from testbed.dualpath.chains import chunk_name
from testbed.dualpath.disk import (
    ABSENT,
    DAMAGED,
    FULL,
    DiskCommit,
    DiskDone,
    DiskDrop,
    DiskRead,
    DiskWork,
    DiskWrite,
)
from testbed.machine import NOTHING, Deliver, Effect, Effects
from testbed.units import MILLISECOND, Nanoseconds

TURN = MILLISECOND
"""Wall time after which a turn does not begin another operation."""


class TargetDisk:
    """The `Accelerator` of an emulated storage node; see the head of this file.

    `dilation` is the run's: answers have true times. `clock` reads nanoseconds of wall time.
    """

    def __init__(self, target: StorageTarget, dilation: float, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._target = target
        self._dilation = dilation
        self._clock = clock
        self._works: deque[tuple[Nanoseconds, DiskWork]] = deque()
        self._free_at: Nanoseconds = 0

    def committed(self) -> dict[int, int]:
        """Version of each chunk that is there and whole in its header, as a server that starts finds them."""
        found = {}
        for name in self._target.names():
            try:
                found[int(name, 16)] = self._target.version(name) or 0
            except (DamagedChunk, ValueError):
                continue
        return found

    def submit(self, now: Nanoseconds, work: Any) -> Effects:
        """Takes one `DiskWork`. Raises TypeError for anything else."""
        if not isinstance(work, DiskRead | DiskWrite | DiskCommit | DiskDrop):
            raise TypeError(f"a disk does no {type(work).__name__}")
        self._works.append((now, work))
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:
        """Does what fits into a turn. Raises OSError when the device fails: no answer would be true."""
        effects: list[Effect] = []
        begin = self._clock()
        while self._works:
            _, work = self._works.popleft()
            before = self._clock()
            done = self._do(work)
            after = self._clock()
            elapsed = round((after - before) / self._dilation)
            answer = DiskDone(work.ticket, done.version, done.data, done.failure, elapsed)
            effects.append(Deliver(work.owner, answer))
            self._free_at = now + round((after - begin) / self._dilation)
            if after - begin >= TURN:
                break
        return effects

    def deadline(self) -> Nanoseconds | None:
        """When the oldest operation could begin: at once, or when the disk was done with the one before."""
        return max(self._works[0][0], self._free_at) if self._works else None

    def _do(self, work: DiskWork) -> DiskDone:
        name = chunk_name(work.block)
        try:
            match work:
                case DiskRead():
                    version, data = self._target.read(name)
                    return DiskDone(0, version, data)
                case DiskWrite():
                    self._write(name, work)
                case DiskCommit():
                    self._commit(name, work)
                case DiskDrop():
                    self._target.drop(name, work.version)
        except NoChunk:
            return DiskDone(0, failure=ABSENT)
        except DamagedChunk as fault:
            return DiskDone(0, failure=f"{DAMAGED}: {fault}")
        except StorageFull:
            return DiskDone(0, failure=FULL)
        return DiskDone(0, work.version)

    def _write(self, name: str, work: DiskWrite) -> None:
        put = self._target.write if work.final else self._target.write_draft
        try:
            put(name, work.version, work.data)
        except StaleVersion:
            pass  # a higher version is there: this one will not be read any more
        except DamagedChunk:
            self._target.remove(name)
            put(name, work.version, work.data)

    def _commit(self, name: str, work: DiskCommit) -> None:
        try:
            self._target.commit(name, work.version)
        except (StaleVersion, NoChunk):
            self._target.drop(name, work.version)
        except DamagedChunk:
            self._target.remove(name)
            self._target.commit(name, work.version)
