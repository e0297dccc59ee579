"""Whether a run folder still takes what is written into it: a full or read-only disk, a folder that was taken away.

Every process of a run writes into the run folder, and whichever fails first says so in its own way, or cannot say so
any more since its log is there too. So the cause is looked for at the folder itself. Knows nothing of runs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PROBE_BYTES = 1 << 16
"""Less than what a node writes in a second; a file system with less room than this has failed somebody already."""


def storage_fault(folder: Path) -> str:
    """`folder: what the kernel says`, if a few bytes cannot be written into it; else empty."""
    probe = folder / f".probe.{os.getpid()}"
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _PROBE_BYTES)
        finally:
            os.close(fd)
    except OSError as fault:
        return f"{folder}: {fault.strerror}"
    finally:
        with suppress(OSError):
            probe.unlink()
    return ""
