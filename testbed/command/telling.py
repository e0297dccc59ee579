"""What people are told while and after a verb works: progress, and a fault on one line."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(line: str) -> None:
    """Progress for people, on standard error, so that standard output is the result alone. Nobody need listen."""
    with suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)


def words_of(fault: BaseException) -> str:
    """A fault on one line."""
    if isinstance(fault, OSError) and fault.strerror:
        return f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror
    return " ".join(f"{type(fault).__name__}: {fault}".split())
