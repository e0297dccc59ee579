"""What this host can emulate, as topologies' probes find it. Asked of runnerd, which may look at everything; where it
is away, the probes run without privilege and say what they could not see. Answers are kept for a few minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from testbed.command.places import SOURCE
from webui.runs.bench import ask_runnerd

KEPT_S = 300.0
PATIENCE_S = 60.0

TONES = {"ok": "ok", "note": "info", "warning": "warn", "missing": "bad"}
"""By level, as topologies.abilities has them; a level of another version is shown as a note."""


@dataclass(frozen=True)
class Finding:
    """One probe's answer."""

    tone: str
    """ok, info, warn or bad."""
    title: str
    detail: str
    command: str
    """What would help; may be empty."""


@dataclass(frozen=True)
class Report:
    """All findings, the worst first."""

    findings: tuple[Finding, ...]
    can_emulate: bool
    privileged: bool
    """Asked of runnerd; without it only simulations can run, whatever the host has."""
    checked: float
    """time.monotonic of the probing."""
    fault: str = ""

    @property
    def fine(self) -> list[Finding]:
        """What is as it should be."""
        return [finding for finding in self.findings if finding.tone == "ok"]

    @property
    def notes(self) -> list[Finding]:
        """What is to be known: neither fine nor in the way."""
        return [finding for finding in self.findings if finding.tone == "info"]

    @property
    def open(self) -> list[Finding]:
        """What needs attention."""
        return [finding for finding in self.findings if finding.tone in ("warn", "bad")]

    @property
    def minutes_ago(self) -> int:
        """Age."""
        return int((time.monotonic() - self.checked) // 60)


_kept: Report | None = None
_lock = threading.Lock()


def doctor_report(*, fresh: bool = False) -> Report:
    """The present report; probes again if it is old, or if `fresh`."""
    global _kept  # a cache of this process, behind a lock
    with _lock:
        if fresh or _kept is None or time.monotonic() - _kept.checked > KEPT_S:
            _kept = _probe()
        return _kept


def _probe() -> Report:
    try:
        answer = ask_runnerd("doctor", patience_s=PATIENCE_S)
        if "error" not in answer:
            return read_report(answer, privileged=True)
    except OSError:
        pass
    command = [sys.executable, "-m", "topologies", "doctor", "--json"]
    try:
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, timeout=PATIENCE_S, check=False)
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as fault:
        return Report((), False, False, time.monotonic(), f"the probes gave no answer ({type(fault).__name__})")
    return read_report(answer, privileged=False)


def read_report(answer: dict[str, Any], *, privileged: bool) -> Report:
    """The report in `topologies doctor --json`; fields that another version lacks are left empty."""
    findings = [_finding(one) for one in answer.get("findings", []) if isinstance(one, dict)]
    order = {"bad": 0, "warn": 1, "info": 2, "ok": 3}
    findings.sort(key=lambda finding: order[finding.tone])
    return Report(tuple(findings), bool(answer.get("can_emulate")), privileged, time.monotonic())


def _finding(one: dict[str, Any]) -> Finding:
    return Finding(
        tone=TONES.get(str(one.get("level", "")), "info"),
        title=str(one.get("name", "")),
        detail=str(one.get("detail", "")),
        command=str(one.get("remedy", "")),
    )
