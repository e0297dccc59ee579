"""The record of live runs under /run/looplane: what the reaper needs when the process that made it all is gone.

/run/looplane/<label>/run.json says whose run it is; processes.jsonl has a line for each process, written as soon as it
is started. A process is known by pid *and* start time *and* boot, so that a number which the kernel has given to
somebody else, or that a reboot has outlived, is never signalled (faults A1, A8).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from topologies.naming import RUN_ROOT, is_label

_START_TIME_FIELD = 19
"""Index of `starttime` (proc_pid_stat(5), field 22) after the command's closing parenthesis."""


class ProcessMark(msgspec.Struct, frozen=True):
    """One process, told from every other that will ever have its number."""

    pid: int
    start: int
    """Start time in clock ticks since boot."""
    boot: str
    """The kernel's boot id."""
    what: str
    """For people: `nic dpu0`, `node client0`, `switch compute`."""

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return self.boot == boot_id() and start_time(self.pid) == self.start

    def signal(self, number: int) -> None:
        """Sends a signal, if this very process still runs.

        A pidfd pins the process before its start time is read, so the number cannot change hands in between.
        """
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive():
                signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(fd)


class RunRecord(msgspec.Struct, frozen=True):
    """Whose run a label is."""

    label: str
    folder: str
    """The run folder."""
    owner: ProcessMark
    """The bench; the run is dead when it is."""
    nodes: str
    """docker or namespace."""


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Start time of a process in ticks since boot; None if there is none, or only its zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[_START_TIME_FIELD])


def mark_of(pid: int, what: str) -> ProcessMark | None:
    """The mark of a running process, or None if it has ended."""
    start = start_time(pid)
    return None if start is None else ProcessMark(pid, start, boot_id(), what)


class RunRegistry:
    """The record of one label."""

    def __init__(self, label: str) -> None:
        if not is_label(label):
            raise ValueError(f"{label!r} is no run label")
        self.label = label
        self.folder = RUN_ROOT / label

    def create(self, record: RunRecord) -> None:
        """Makes the folder and writes run.json. Raises FileExistsError when the label is taken."""
        RUN_ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700)
        try:
            _write(self.folder / "run.json", msgspec.json.encode(record))
        except OSError:  # no room under /run: a label without a record would be nobody's
            self.remove()
            raise

    def record(self) -> RunRecord | None:
        """The record; None where it is missing or half written, as a killed owner leaves it."""
        try:
            return msgspec.json.decode((self.folder / "run.json").read_bytes(), type=RunRecord)
        except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
            return None

    def note(self, pid: int, what: str) -> ProcessMark | None:
        """Appends a process; None if it has ended already."""
        mark = mark_of(pid, what)
        if mark is not None:
            fd = os.open(self.folder / "processes.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, msgspec.json.encode(mark) + b"\n")
            finally:
                os.close(fd)
        return mark

    def processes(self) -> list[ProcessMark]:
        """Every process noted, living or not, in order."""
        try:
            lines = (self.folder / "processes.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        marks = []
        for line in lines:
            try:
                marks.append(msgspec.json.decode(line, type=ProcessMark))
            except msgspec.MsgspecError:  # the last line of an owner that was killed while it wrote
                continue
        return marks

    def live(self) -> bool:
        """Whether the run's owner still runs."""
        record = self.record()
        return record is not None and record.owner.alive()

    def remove(self) -> None:
        """Forgets the label. Call last: while the folder stands, the next reaper goes on where this one stopped."""
        shutil.rmtree(self.folder, ignore_errors=False)


@contextmanager
def registry_lock() -> Iterator[None]:
    """Held while a label is made and while labels are reaped, so that a run that just begins is not taken for dead."""
    RUN_ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (RUN_ROOT / "registry.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def registered() -> list[RunRegistry]:
    """Every label that has a folder, live or dead, in order."""
    if not RUN_ROOT.is_dir():
        return []
    return [RunRegistry(path.name) for path in sorted(RUN_ROOT.iterdir()) if path.is_dir() and is_label(path.name)]


def end_processes(marks: Iterable[ProcessMark], patience_s: float = 5.0) -> list[ProcessMark]:
    """SIGKILLs those that still run and waits for them; returns those that outlived it."""
    waiting = [mark for mark in marks if mark.alive()]
    for mark in waiting:
        mark.signal(signal.SIGKILL)
    end = time.monotonic() + patience_s
    while waiting and time.monotonic() < end:
        time.sleep(0.01)
        waiting = [mark for mark in waiting if mark.alive()]
    return waiting


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(data)
    temporary.replace(path)
