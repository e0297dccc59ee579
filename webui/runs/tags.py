"""Tags of runs: words that their owner gives them, to find them again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from django.db import transaction

from webui.accounts.callers import Caller
from webui.runs.access import may_change, runs_readable
from webui.runs.models import Run

MOST = 10
_TAG = re.compile(r"\A[a-z0-9][a-z0-9._-]{0,29}\Z")
_ALLOWED = "small letters, digits, '.', '_' and '-', at most 30, the first a letter or digit"


class TagFault(Exception):
    """Tags that a run cannot have; the sentence is for the person who typed them."""


def read_tags(words: str | Iterable[str]) -> list[str]:
    """Tags from a list, or from text with commas or blanks between them; each once, in order. Raises TagFault."""
    told = re.split(r"[,\s]+", words) if isinstance(words, str) else words
    tags = list(dict.fromkeys(word.lower() for word in told if word))
    for tag in tags:
        if not _TAG.match(tag):
            raise TagFault(f"tags: {tag[:40]!r}: {_ALLOWED}")
    if len(tags) > MOST:
        raise TagFault(f"tags: {len(tags)} of them: at most {MOST}")
    return tags


@transaction.atomic
def run_tag(
    *, caller: Caller, run_ids: Sequence[str], add: Sequence[str] = (), remove: Sequence[str] = ()
) -> tuple[int, int]:
    """Adds tags to runs and takes others away; how many have changed, and how many are not the caller's to change.

    Runs that the caller may not read are passed over in silence. Raises TagFault if one would have too many; then
    nothing has changed.
    """
    changed = refused = 0
    readable = runs_readable(caller).filter(pk__in=run_ids).values("pk")
    for run in Run.objects.select_for_update().filter(pk__in=readable).only("pk", "tags", "owner"):
        if not may_change(caller, run):
            refused += 1
            continue
        tags = [tag for tag in dict.fromkeys([*run.tags, *add]) if tag not in remove]
        if len(tags) > MOST:
            raise TagFault(f"tags: run {run.label} would have {len(tags)}: at most {MOST}")
        if tags != run.tags:
            Run.objects.filter(pk=run.pk).update(tags=tags)
            changed += 1
    return changed, refused
