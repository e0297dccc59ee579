"""Other programs, run with their status checked: one that fails is never taken for one that worked (fault E15)."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

TIMEOUT_S = 60.0
_LOOK_S = 0.1


class ProgramFailed(Exception):
    """A program ended with a status other than 0, could not be started, or took too long."""

    def __init__(self, argv: Sequence[str], status: str, output: str) -> None:
        self.argv = tuple(argv)
        self.status = status
        self.output = output.strip()
        said = f": {self.output[-2000:]}" if self.output else ""
        super().__init__(f"{_short(shlex.join(self.argv))} {status}{said}")


def run(
    argv: Sequence[str],
    *,
    stdin: str = "",
    timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a program to its end and returns what it printed. Raises `ProgramFailed`, with what it said on stderr.

    The child stands in the network namespace of the calling thread (`topologies.namespaces`).
    """
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=dict(environment) if environment is not None else None,
            check=False,
        )
    except FileNotFoundError:
        raise ProgramFailed(argv, "could not be started", f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired as late:
        said = late.stderr or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise ProgramFailed(argv, f"did not end within {timeout_s:g} s", text) from None
    if done.returncode != 0:
        how = f"ended with {done.returncode}" if done.returncode > 0 else f"was killed by signal {-done.returncode}"
        raise ProgramFailed(argv, how, done.stderr or done.stdout)
    return done.stdout


def run_watched(argv: Sequence[str], watch: Callable[[], None], *, timeout_s: float) -> None:
    """Runs a program that takes long, and calls `watch` ten times a second meanwhile. Raises `ProgramFailed`.

    What `watch` raises ends the program and is raised here, so that a run which is cancelled waits for nothing. The
    program is in a session and a pid namespace of its own: all that it has started ends with it, also when this
    process is killed, and its mounts go with its mount namespace (unshare(1), setpriv(1)).
    """
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *argv]
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        except FileNotFoundError:
            raise ProgramFailed(argv, "could not be started", f"{words[0]} is not installed") from None
        try:
            code = _end_of(child, argv, watch, time.monotonic() + timeout_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if code != 0:
            said.seek(max(0, said.tell() - 4096))
            raise ProgramFailed(argv, f"ended with {code}", said.read().decode(errors="replace"))


def _end_of(child: subprocess.Popen[bytes], argv: Sequence[str], watch: Callable[[], None], limit: float) -> int:
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(_LOOK_S)
        watch()
        if time.monotonic() > limit:
            raise ProgramFailed(argv, "did not end in time", "")


def _short(command: str, limit: int = 120) -> str:
    return command if len(command) <= limit else command[:limit] + " …"
