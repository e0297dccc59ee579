"""A storage node's real disk: the accelerator whose chunks are files of a storage target, and whose time is measured.

The same contract as the modelled disk (`testbed.dualpath.disk`, one conformance suite for both). A thread of its own
waits for the device, so that letters and transfers of the node do not: a write passes several threads of the kernel,
and where nodes of a run keep a core busy each of them may wait for milliseconds. It decides nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
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
from testbed.units import Nanoseconds


class TargetDisk:
    """The `Accelerator` of an emulated storage node; see the head of this file.

    `dilation` is the run's: answers have true times. `clock` reads nanoseconds of wall time.
    """

    def __init__(self, target: StorageTarget, dilation: float, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable while there are answers: the node's loop watches it."""
        self._target = target
        self._dilation = dilation
        self._clock = clock
        self._works: SimpleQueue[DiskWork | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._answers: deque[tuple[str, DiskDone] | OSError] = deque()
        self._thread = threading.Thread(target=self._serve, name="disk", daemon=True)
        self._thread.start()

    def committed(self) -> dict[int, int]:
        """Version of each chunk that is there and whole in its header, as a server that starts finds them."""
        found = {}
        for name in self._target.names():
            with suppress(DamagedChunk, ValueError):
                found[int(name, 16)] = self._target.version(name) or 0
        return found

    def submit(self, now: Nanoseconds, work: Any) -> Effects:  # noqa: ARG002  # the device begins when it is free
        """Takes one `DiskWork`. Raises TypeError for anything else."""
        if not isinstance(work, DiskRead | DiskWrite | DiskCommit | DiskDrop):
            raise TypeError(f"a disk does no {type(work).__name__}")
        self._works.put(work)
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002  # real operations take the time they take
        """Hands over the answers there are. Raises OSError when the device has failed: no answer would be true."""
        with self._lock:
            with suppress(BlockingIOError):
                os.eventfd_read(self.fd)
            answers = list(self._answers)
            self._answers.clear()
        effects: list[Effect] = []
        for answer in answers:
            if isinstance(answer, OSError):
                raise answer
            effects.append(Deliver(*answer))
        return effects

    def deadline(self) -> Nanoseconds | None:
        """At once where there are answers."""
        return 0 if self._answers else None

    def close(self) -> None:
        """Ends the thread, once all that was asked for is done."""
        self._works.put(None)
        self._thread.join()
        os.close(self.fd)

    # --- the thread ---

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            before = self._clock()
            answer: tuple[str, DiskDone] | OSError
            try:
                done = self._do(work)
                elapsed = round((self._clock() - before) / self._dilation)
                answer = (work.owner, DiskDone(work.ticket, done.version, done.data, done.failure, elapsed))
            except OSError as fault:
                answer = fault
            with self._lock:
                self._answers.append(answer)
                os.eventfd_write(self.fd, 1)

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
