"""What came of a finished run, in the words of its summary: for pipelines, as plain data and as JUnit XML.

A run that ended before it wrote a summary has a verdict too: its outcome, and nothing that was judged.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from testbed.experiment.export_junit import export_junit
from testbed.experiment.run_folder import Outcome
from testbed.experiment.summary import RunSummary, read_summary
from testbed.metrics.fidelity import Fidelity
from testbed.metrics.latency import EVERYTHING
from webui.runs.folder import LONGEST_SUMMARY, folder_of
from webui.runs.models import Run


def verdict_of(run: Run) -> dict[str, Any]:
    """Outcome, fidelity and expectations of a finished run."""
    summary = _summary_of(run)
    fidelity = None
    if summary is not None:
        fidelity = {"verdict": summary.fidelity.verdict, "reasons": list(summary.fidelity.reasons)}
    return {
        "run": run.pk,
        "passed": run.outcome == "passed",
        "outcome": run.outcome,
        "detail": run.detail,
        "fidelity": fidelity,
        "expectations": [] if summary is None else [msgspec.to_builtins(row) for row in summary.expectations],
    }


def junit_of(run: Run) -> bytes:
    """The same as JUnit XML; of a run without a summary a suite whose one case broke."""
    return export_junit(_summary_of(run) or _unjudged(run), run.experiment)


def _summary_of(run: Run) -> RunSummary | None:
    """The folder's summary with the row's outcome, which knows also what came after; None if it cannot be read."""
    path = folder_of(run.pk) / "summary.json"
    try:
        if path.stat().st_size > LONGEST_SUMMARY:
            return None
        summary = read_summary(path.read_bytes())
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    return msgspec.structs.replace(summary, outcome=run.outcome, detail=run.detail)


def _unjudged(run: Run) -> RunSummary:
    return RunSummary(
        run=run.pk,
        folder="",
        outcome=cast(Outcome, run.outcome),
        detail=run.detail,
        clock="simulated" if run.backend == "sim" else "wall",
        dilation=1.0,
        byte_scale=1,
        fidelity=Fidelity("degraded", (), (), "nothing was judged"),
        systems={},
        expectations=(),
        trials=(),
        shares={},
        selection=EVERYTHING,
    )
