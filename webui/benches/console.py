"""Who this console is, written into its folder of runs: a worker that looks at another folder notices.

Benches share the folder (LOOPLANE_RUNS), as a mounted file system. A mount that is missing looks like an empty folder,
and a run that is written there is never seen by the console.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from webui.benches.models import Console

MARK = ".console"


def console_key() -> str:
    """The same for every process on this database."""
    return str(Console.objects.get_or_create(pk=Console.ONLY)[0].key)


def console_mark() -> None:
    """Writes the key into the folder of runs; done by the console itself when it starts, never by a worker.

    Raises OSError.
    """
    mark = Path(settings.RUNS_FOLDER) / MARK
    key = console_key()
    try:
        if mark.read_text() == key:
            return
    except (OSError, UnicodeDecodeError):
        pass
    mark.write_text(key)


def folder_fault() -> str:
    """Why the folder of runs here is not the console's, in one sentence; empty if it is."""
    folder = Path(settings.RUNS_FOLDER)
    try:
        found = (folder / MARK).read_text()
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "unreadable"
        return f"its folder of runs is not the console's: {MARK} in it cannot be read ({why})"
    return "" if found == console_key() else "its folder of runs is another console's"
