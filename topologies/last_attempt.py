"""A run folder that is tried again: what the last attempt left is put aside, whole, before anything new is written.

Otherwise a `ready` or `done` of the last attempt would open this one's barrier or end it, and its events would be
counted with the new ones (fault A17). Nothing is deleted. Knows the names of files and nothing of what is in them.
"""

from __future__ import annotations

from pathlib import Path

EARLIER = "earlier"
"""Folder in the run folder; each attempt but the last is in a numbered folder there."""
_LEFT = ("control/*", "events/*.jsonl", "captures/*", "summary.json", "report/*")
_STAYS = frozenset({"bench.lock", "conductor.lock", "outcome.json", "runner.json"})
"""Files in control/ of those who have this attempt carried out."""


def put_aside(folder: Path) -> Path | None:
    """Moves what an attempt has written in the run folder `folder` to `earlier/<n>`; None where there was none."""
    left = [path for pattern in _LEFT for path in sorted(folder.glob(pattern)) if path.name not in _STAYS]
    if not left:
        return None
    number = 1 + len(list((folder / EARLIER).glob("*")))
    aside = folder / EARLIER / str(number)
    for path in left:
        there = aside / path.relative_to(folder)
        there.parent.mkdir(parents=True, exist_ok=True)
        path.replace(there)
    return aside
