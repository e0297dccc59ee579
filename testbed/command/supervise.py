"""A small supervisor: starts a few processes as their own users, restarts what dies, ends them in order.

No process manager is required of the host: this is the parent of the console's three processes wherever there is
Python (design/console.md §7, §8). It signals only processes that it has started. If it is killed itself, the kernel
ends its children (PR_SET_PDEATHSIG), so that nothing stays behind without a parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
TICK_S = 0.1
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 15.0
SOUND_S = 10.0
"""A process that has lived so long starts with a short wait again when it dies."""


@dataclass(frozen=True)
class Service:
    """One process to be kept running."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    """Both streams are appended here."""
    user: int | None = None
    """None leaves the supervisor's own user and groups."""
    group: int | None = None
    descriptors: Sequence[int] = ()
    """File descriptors that it inherits."""
    patience_s: float = 8.0
    """From SIGTERM to SIGKILL."""


@dataclass
class _Kept:
    """A service as it stands."""

    service: Service
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0
    wait_s: float = 0.0
    restarts: int = 0


@dataclass
class Supervisor:
    """Keeps services running until it is told to stop. `say` takes lines for people."""

    services: Sequence[Service]
    """In order of starting; they end in the opposite order."""
    say: Callable[[str], None]
    first_wait_s: float = FIRST_WAIT_S
    stopping: bool = False
    _kept: list[_Kept] = field(default_factory=list)

    def start(self) -> None:
        """Starts every service. Raises OSError if one cannot be started at all."""
        self._kept = [_Kept(service, wait_s=self.first_wait_s) for service in self.services]
        for kept in self._kept:
            self._start(kept)

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT end `run`."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "stopping", True))

    def run(self) -> None:
        """Watches and restarts until told to stop, then ends everything."""
        try:
            while not self.stopping:
                self.watch()
                time.sleep(TICK_S)
        finally:
            self.end()

    def watch(self) -> None:
        """One look at each service; starts again what has died and is due."""
        now = time.monotonic()
        for kept in self._kept:
            if kept.process is None:
                if now >= kept.due:
                    self._start(kept)
                continue
            code = kept.process.poll()
            if code is not None:
                self._note_death(kept, code, now)

    def pids(self) -> dict[str, int]:
        """The running processes by service."""
        return {kept.service.name: kept.process.pid for kept in self._kept if kept.process is not None}

    def end(self) -> None:
        """SIGTERM in the opposite order of starting, each waited for; SIGKILL to its session when patience ends."""
        for kept in reversed(self._kept):
            process, kept.process = kept.process, None
            if process is None:
                continue
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(kept.service.patience_s)
                except subprocess.TimeoutExpired:
                    self.say(f"{kept.service.name} did not end within {kept.service.patience_s:.0f} s and was killed")
            _kill_group(process.pid)
            process.wait()

    def _start(self, kept: _Kept) -> None:
        service = kept.service
        log = os.open(service.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            kept.process = subprocess.Popen(
                service.command,
                cwd=service.folder,
                env=dict(service.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=service.descriptors,
                user=service.user,
                group=service.group,
                extra_groups=None if service.user is None else [],
                umask=0o022,
                preexec_fn=_die_with_parent,  # this process has no other threads
            )
        finally:
            os.close(log)
        kept.started = time.monotonic()

    def _note_death(self, kept: _Kept, code: int, now: float) -> None:
        assert kept.process is not None
        _kill_group(kept.process.pid)  # what it may have left in its own session
        kept.process = None
        kept.restarts += 1
        if now - kept.started > SOUND_S:
            kept.wait_s = self.first_wait_s
        kept.due = now + kept.wait_s
        how = f"exit {code}" if code >= 0 else signal.Signals(-code).name
        self.say(f"{kept.service.name} ended ({how}), starts again in {kept.wait_s:g} s; see {kept.service.log}")
        kept.wait_s = min(kept.wait_s * 2, LONGEST_WAIT_S)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    """Runs in the child after the change of user, which would clear the setting (prctl(2))."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
