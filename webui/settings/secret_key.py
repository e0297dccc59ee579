"""The console's secret key: made once for an installation, readable by the service user only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def is_ours(folder: Path) -> bool:
    """Whether this process's user owns the folder: what root made in it, the service user could not read."""
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


def secret_key(path: Path) -> str:
    """The key in `path`, made there if the folder belongs to this process's user.

    Where it is not (type checkers, tests, a first `check`) the key is a fresh one for this process alone, which is
    safe: it only means that no session outlives the process.
    """
    try:
        return path.read_text().strip()
    except OSError:
        pass
    fresh = secrets.token_urlsafe(50)
    if not is_ours(path.parent):
        return fresh
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return fresh
    try:
        with os.fdopen(file, "w") as handle:
            handle.write(fresh)
        os.link(part, path)  # fails if another process was first: then its key is the key
    except FileExistsError:
        return path.read_text().strip()
    finally:
        part.unlink(missing_ok=True)
    return fresh
