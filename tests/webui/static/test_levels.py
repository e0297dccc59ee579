"""The page and the server put every kind of event on the same level: static/run/journal.js and webui.runs.levels."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from webui.runs.levels import LEVELS, level_of

JOURNAL = Path(__file__).resolve().parents[3] / "webui" / "static" / "run" / "journal.js"
PROGRAM = """
import { levelOf } from %s;
const { events, levels } = JSON.parse(await new Response(process.stdin).text());
console.log(JSON.stringify(events.map((event) => levelOf(event, levels))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js (apt-get install nodejs)")
def test_both_say_the_same() -> None:
    events = [{"type": kind} for kind in [*LEVELS, "run.started", "new.kind"]]
    events += [{"type": "line.logged", "severity": word} for word in ("debug", "info", "warning", "error", "odd", "")]
    for more in ({"type": "node.stopped", "code": 0}, {"type": "node.stopped", "code": -9}):
        events.append(more)  # type: ignore[arg-type]
    events += [{"type": "run.finished", "outcome": word} for word in ("passed", "errored")]
    events += [{"type": "fidelity.judged", "verdict": word} for word in ("faithful", "invalid")]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", PROGRAM % json.dumps(JOURNAL.as_uri())],
        input=json.dumps({"events": events, "levels": LEVELS}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == [level_of(event) for event in events]
