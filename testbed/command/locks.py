"""Who is alive, by locks that the kernel releases when a process dies (flock(2)); a number in a file proves nothing."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Holds the lock at `path` while open, if nobody else does; yields whether it does."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock at `path`."""
    if not path.exists():
        return False
    with held(path) as free:
        return not free
