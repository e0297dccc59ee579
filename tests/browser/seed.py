"""Run as a program on a console's state folder: puts runs of every standing into it, some of them really simulated.

Prints `{name: run id}` as JSON: passed, failed, dualpath (finished, with a folder), queued, errored (rows alone), and
secret (the outsider's, for nobody else).
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

EXPERIMENTS = Path(__file__).resolve().parents[2] / "fixtures" / "experiments"


def main() -> None:
    """The runs, as rows and folders."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
    import django

    django.setup()
    print(
        json.dumps(
            {
                "passed": finished("blink/small", ["workload.requests=8"], tags=["nightly", "seed"]),
                "failed": finished("blink/small", ['expect."systems.blink.ttft_ms.p50".at_most=0.001']),
                "dualpath": finished("dualpath/small", [], tags=["seed"]),
                "queued": row("blink/demo", backend="mininet", needs=["a-bench-of-my-dreams"]),
                "errored": row(
                    "blink/demo", state="finished", outcome="errored", backend="mininet",
                    detail="node gpu0 ended before the run: exit 1", finished_at=datetime.now(UTC),
                ),
                "secret": row("blink/demo", owner="otto", visibility="private", needs=["a-bench-of-my-dreams"],
                              question="What does nobody else know?"),
            }
        )
    )  # fmt: skip


def finished(experiment: str, overrides: list[str], **fields: Any) -> str:
    """A simulation that has ended; its run id."""
    from django.conf import settings

    from tests.simulated_runs import simulated
    from webui.runs.folder import summary_of

    run_id = simulated(EXPERIMENTS / f"{experiment}.toml", overrides, Path(settings.RUNS_FOLDER)).path.name
    summary = summary_of(run_id)
    now = datetime.now(UTC)
    return row(
        experiment, run_id, overrides=overrides, state="finished", outcome=summary["outcome"], summary=summary,
        started_at=now, finished_at=now, **fields,
    )  # fmt: skip


def row(experiment: str, run_id: str = "", *, owner: str = "rune", **fields: Any) -> str:
    """A row of the console; its run id."""
    from testbed.experiment.run_folder import new_run_id
    from webui.accounts.models import User
    from webui.runs.models import Run
    from webui.runs.specs import read_spec

    text = (EXPERIMENTS / f"{experiment}.toml").read_text()
    facts = read_spec(text, overrides=fields.get("overrides", []), where=experiment)
    values = {
        "question": facts.question, "experiment": experiment, "spec": text, "systems": list(facts.systems),
        "seed": facts.seed, "backend": "sim", "visibility": "everyone", "owner": User.objects.get(username=owner),
    } | fields  # fmt: skip
    run, _ = Run.objects.update_or_create(pk=run_id or new_run_id(datetime.now(UTC)), defaults=values)
    return str(run.pk)


if __name__ == "__main__":
    main()
