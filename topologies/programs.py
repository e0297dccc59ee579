"""Other programs, run with their status checked: one that fails is never taken for one that worked (fault E15)."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence

TIMEOUT_S = 60.0


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


def _short(command: str, limit: int = 120) -> str:
    return command if len(command) <= limit else command[:limit] + " …"
