"""The list from which runs are picked to be compared: what the caller may read, newest first, searched by text."""

from __future__ import annotations

import re
from typing import Any

from django.http import Http404, HttpRequest

from testbed.comparison.comparison import MOST_SIDES
from webui.accounts.callers import caller_of
from webui.runs import selectors
from webui.runs.states import State

SHOWN = 40
_SWEEP = re.compile(r"^\s*(?:\[sweep\]|sweep\.)", re.MULTILINE)


def picker(request: HttpRequest, told: list[str]) -> dict[str, Any]:
    """What the template takes. Raises Http404 for a run in the address that is not the caller's to read."""
    caller = caller_of(request)
    text = request.GET.get("text", "").replace("\x00", "")[:100].strip()
    chosen = []
    for side in told[:MOST_SIDES]:
        run = selectors.run_get(run_id=side.partition(":")[0][:40], caller=caller)
        if run is None:
            raise Http404(side)
        chosen.append((side, run, side.partition(":")[2]))
    runs = selectors.run_list(caller=caller, state=State.FINISHED, text=text)
    return {
        "section": "compare",
        "chosen": chosen,
        "runs": [(run, bool(_SWEEP.search(run.spec))) for run in runs[:SHOWN]],
        "text": text,
        "room": MOST_SIDES - len(chosen),
        "most": MOST_SIDES,
    }
