"""Many viewers of a fast run, and the web process killed under them: every event once, for everybody.

Nothing here judges speed: `looplane bench live` measures it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from testbed.command.places import SOURCE


def loaded(*words: str) -> dict[str, Any]:
    """What a measurement found."""
    command = [sys.executable, "-m", "webui.runs.live_bench", *words]
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_viewer_has_every_event_once_also_through_a_killed_server() -> None:
    """Faults F2 and F3: whoever joins, is cut off or is slow misses nothing, doubles nothing and delays nobody."""
    found = loaded("--seconds", "6", "--rate", "2000", "--viewers", "5", "--no-browser", "--kill")
    assert found["events"] > 6000
    assert found["wrong"] == [0] * 5
    assert min(found["connects"]) >= 2, "the server was killed under every viewer"


@pytest.mark.soak
@pytest.mark.browser
def test_a_minute_of_five_thousand_events_a_second_for_ten(soak: bool, soak_note: Callable[[str], None]) -> None:
    if not soak:
        pytest.skip("a minute long: --soak")
    found = loaded()
    assert found["wrong"] == [0] * 10
    latency = sorted(found["latency"])
    soak_note(
        f"5,000 events/s, ten viewers, 60 s: event to screen p50 {latency[len(latency) // 2]:.0f} ms, "
        f"p99 {latency[int(len(latency) * 0.99)]:.0f} ms, frames/s least {min(found['frames']):.0f}, "
        f"server {sum(found['cpu_percent']) / len(found['cpu_percent']):.0f} % of a core"
    )
