"""One run as the API tells it; `webui.runs.facts` has the parts that pages and live streams share."""

from __future__ import annotations

from typing import Any

from webui.accounts.callers import Caller
from webui.runs.facts import run_facts
from webui.runs.models import Run


def whole(run: Run, caller: Caller) -> dict[str, Any]:
    """One run with its trials and its queue, and its summary once it has one."""
    return {
        **run_facts(run, caller),
        "groups": sorted(run.groups.values_list("name", flat=True)),
        "time_limit_s": run.time_limit_s,
        "summary": run.summary or None,
    }
