"""Starts what a spec asks for: makes the run folder and its plans, then simulates here or has the bench emulate.

`prepare` decides everything that can be decided beforehand. `simulate` (testbed.experiment.simulation) runs one trial
under the simulated clock in this process and writes the same files of events as an emulation; `launch_wall` starts
`python -m topologies run` and passes its words and signals on. What the figures say is judged later, from the events.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.provenance import collect_provenance, finished, read_provenance
from testbed.experiment.reading import at_point, tables_of
from testbed.experiment.run_folder import RunFolder, label_of, new_run_id, write_whole
from testbed.experiment.simulation import simulate
from testbed.experiment.spec import Spec
from testbed.experiment.surroundings import check_surroundings
from testbed.experiment.sweep import labels, places
from testbed.network.wire_profile import MODELLED, WireProfile

__all__ = ["Prepared", "WallEnd", "launch_wall", "note_end", "prepare", "serve_in_process", "simulate"]

Progress = Callable[[str], None]
"""Takes one line of a process's words."""

LONGEST_LINE = 1 << 16
"""Bytes of a process's line that are passed on; the rest is a line of its own (fault F5)."""
_LOOK_S = 0.2
SOURCE = Path(__file__).resolve().parents[2]


def _unheard(line: str) -> None:  # nobody listens
    """The progress of a run that nobody watches."""


class Prepared(NamedTuple):
    """A run that can start."""

    folder: RunFolder
    trials: tuple[RunFolder, ...]
    """Each with its plan; the folder itself when there is but one."""
    plans: tuple[Plan, ...]


def prepare(
    spec: Spec,
    parent: Path | str,
    *,
    clock: Literal["simulated", "wall"],
    text: bytes = b"",
    overrides: Sequence[str] = (),
    command: Sequence[str] = (),
    abilities: dict[str, Any] | None = None,
    run: str | None = None,
    wire_profile: WireProfile = MODELLED,
) -> Prepared:
    """Makes the run's folder in `parent` and plans every trial. `text` is the experiment as its author wrote it.

    Raises `RunFolderError` if the folder cannot be made, ValueError if `run` is no run id or a plan cannot be
    simulated.
    """
    run = run or new_run_id()
    label_of(run)  # a name that is no run id may be a path out of `parent`
    all_places = places(list(spec.systems), spec.sweep, spec.repeats)
    names = labels(all_places) if len(all_places) > 1 else [""]
    kernel_labels = _kernel_labels(run, names)
    specs = [at_point(spec, place.point) if place.point else spec for place in all_places]
    plans = tuple(
        compile_plan(at, place, run=run, label=label, clock=clock, trial=name, wire_profile=wire_profile)
        for at, place, label, name in zip(specs, all_places, kernel_labels, names, strict=True)
    )
    for plan in plans:
        check_surroundings(plan)
    folder = RunFolder.create(parent, run)
    trials = tuple(folder.create_trials(names)) if len(plans) > 1 else (folder,)
    if text:
        write_whole(folder.spec_toml, text)
    provenance = collect_provenance(
        spec, clock=clock, command=command or sys.argv, overrides=overrides, abilities=abilities
    )
    for there, described in ((folder, spec), *zip(trials, specs, strict=True)):
        there.write_json(there.spec_json, tables_of(described))
        there.write_json(there.provenance_file, provenance)
    for trial, plan in zip(trials, plans, strict=True):
        trial.write_plan(plan)
    folder.set_status("preparing")
    return Prepared(folder, trials, plans)


def note_end(folder: RunFolder) -> None:
    """Adds the time of its end to the provenance of a run."""
    provenance = read_provenance(folder.provenance_file.read_bytes())
    folder.write_json(folder.provenance_file, finished(provenance))


def _kernel_labels(run: str, names: Sequence[str]) -> list[str]:
    """Six hex digits for each trial: the run's own for a single one, else made from the trial's name."""
    if list(names) == [""]:
        return [label_of(run)]
    found: list[str] = []
    for name in names:
        label, salt = "", 0
        while not label or label in found:
            label = hashlib.sha256(f"{run}/{name}/{salt}".encode()).hexdigest()[:6]
            salt += 1
        found.append(label)
    return found


# --- an emulation ----------------------------------------------------------------------------------------------------


class WallEnd(NamedTuple):
    """How the bench's process ended."""

    code: int
    """0, or the exit codes of the command: 2 bad input, 3 this host cannot, 4 errored."""
    last_words: str
    """What it said last, on either stream."""
    signalled: bool
    """True if this process was asked to end while it ran."""


def launch_wall(
    folder: RunFolder, *, serve: bool = False, progress: Progress = _unheard, python: str = sys.executable
) -> WallEnd:
    """Has the bench emulate one trial and waits for its end; with `serve`, until it is signalled.

    SIGINT and SIGTERM go on to the bench, which cleans up. Raises OSError if the process cannot be started.
    """
    # Should we end before it has asked the kernel to be told so, it sees by our number that it has another parent.
    words = [python, "-m", "topologies", "run", str(folder.path), "--starter", str(os.getpid())]
    return _watch([*words, "--serve"] if serve else words, progress)


def serve_in_process(
    folder: RunFolder, *, progress: Progress = _unheard, python: str = sys.executable
) -> WallEnd:
    """Serves one trial's system from a single process, paced by the wall clock, until it is signalled. No root."""
    return _watch([python, "-m", "emulators.in_process", "--run", str(folder.path)], progress)


def _watch(words: Sequence[str], progress: Progress) -> WallEnd:
    """Runs a process to its end and passes its lines on. It ends with us, except where we are killed."""
    last = ""
    with _Signals() as signals:
        # In a session of its own, Ctrl-C reaches it only through us, once, and it can take its time to clean up.
        child = subprocess.Popen(
            words,
            cwd=SOURCE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            signals.pass_to(child)
            for line in _lines(child):
                last = line
                progress(line)
            code = child.wait()
        except BaseException:
            # Whoever listened has failed; nobody may go on emulating behind our back.
            child.terminate()
            child.wait()
            raise
        finally:
            if child.stdout is not None:
                child.stdout.close()
    return WallEnd(code, last, bool(signals.came))


def _lines(child: subprocess.Popen[bytes]) -> Iterator[str]:
    """What `child` says, line by line, to its end, whoever else still holds its pipe."""
    assert child.stdout is not None
    fd = child.stdout.fileno()
    pending = b""
    while True:
        ready, _, _ = select.select([fd], [], [], _LOOK_S)
        if not ready:
            if child.poll() is not None:
                break
            continue
        data = os.read(fd, 1 << 16)
        if not data:
            break
        *whole, pending = (pending + data).split(b"\n")
        while len(pending) > LONGEST_LINE:
            whole.append(pending[:LONGEST_LINE])
            pending = pending[LONGEST_LINE:]
        yield from filter(None, (line.decode(errors="replace").rstrip() for line in whole))
    if pending.strip():
        yield pending.decode(errors="replace").rstrip()


class _Signals:
    """While open, SIGINT and SIGTERM of this process are kept, and passed on to a child as soon as there is one."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        # Only the main thread of a process may set handlers; elsewhere signals are somebody else's.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pass_to(self, child: subprocess.Popen[bytes]) -> None:
        """From now on signals go to `child`, those that have come already first."""
        self._child = child
        for number in tuple(self.came):
            child.send_signal(number)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.came.append(number)
        if self._child is not None:
            self._child.send_signal(number)
