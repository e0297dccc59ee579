"""How many of a run's requests have ended, counted from the clients' logs as they grow; for lines of progress only.

Records are not decoded: the bench shares the hosts' cores with what it watches, and a count of marks costs next to
nothing. Who needs the figures themselves folds the events (testbed.metrics).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.experiment.plan import Plan
from testbed.workload.schedule import read_workload, requests_in

_MARKS = (b'"type":"request.finished"', b'"type":"request.failed"')
"""As `testbed.events.log` writes them; a quotation mark in a prompt's text is escaped, so text cannot look like one."""
_CHUNK = 1 << 20


def planned_requests(plan: Plan) -> int | None:
    """How many requests the plan's clients will send, turns of agents included; None for a plan without a workload."""
    return requests_in(read_workload(plan.workload), plan.workload_seed) if plan.workload else None


class RequestCount:
    """Counts as it reads; each look goes on where the last one stopped."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        clients = [node.name for node in plan.nodes if node.role == "client"]
        self._files: Sequence[Path] = [folder / "events" / f"{name}.jsonl" for name in clients]
        self._offsets = dict.fromkeys(self._files, 0)
        total = planned_requests(plan)
        self._of = "" if total is None else f" of {total}"
        self.ended = 0
        """Requests that have finished or failed, as of the last look."""

    def look(self) -> str:
        """Reads on and says `23 of 64 requests`. A log that is not there yet has none."""
        for path in self._files:
            self._read(path)
        return f"{self.ended}{self._of} requests"

    def _read(self, path: Path) -> None:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offsets[path])
            while data := file.read(_CHUNK):
                whole = data[: data.rfind(b"\n") + 1]  # a line may be half written, or go on in the next chunk
                if not whole:
                    return
                self.ended += sum(whole.count(mark) for mark in _MARKS)
                self._offsets[path] += len(whole)
                file.seek(self._offsets[path])
