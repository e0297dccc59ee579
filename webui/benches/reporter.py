"""A worker's voice for its bench: the heartbeat, the checks and the probes, at the pace of the worker's own clockwork.

Knows no Celery: `webui.runs.sweeper` calls `beat` every second, in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time

from django.conf import settings
from django.db import close_old_connections

from webui.benches.health import Steadiness, look, machine_facts
from webui.benches.identity import bench_here
from webui.benches.needs import Ability
from webui.benches.services import bench_leaves, bench_probed, bench_report
from webui.catalogue.doctor import Report, doctor_report
from webui.runs.estimates import present_revision
from webui.runs.models import Backend, Run
from webui.runs.states import ACTIVE

logger = logging.getLogger(__name__)

REPORT_EVERY_S = 2.0
LOOK_EVERY_S = 4.0
"""Twice this, by health.LOOKS, until a bench is taken out or comes back."""
PROBE_EVERY_S = 300.0
PROBE_AGAIN_S = 5.0
"""After probes that could not ask the privileged runner."""
NO_RUNNER = "the console was started without root there, so only simulations can run"


class Reporter:
    """One worker's. `threads`: tasks that it carries at once."""

    def __init__(self, threads: int) -> None:
        self.bench = bench_here()
        self._threads = threads
        self._steady = Steadiness()
        self._reported = self._looked = self._probed = float("-inf")
        self._probing = threading.Lock()

    def beat(self) -> None:
        """Whatever is due. Probes go on in a thread of their own, since they take seconds."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            self._steady.saw(look())
        if now - self._reported >= REPORT_EVERY_S:
            self._reported = now
            self.report()
        if now - self._probed >= PROBE_EVERY_S and not self._emulates():
            self._probed = now
            threading.Thread(target=self._probe, name="bench probes", daemon=True).start()

    def report(self) -> None:
        """The heartbeat."""
        facts = {**machine_facts(threads=self._threads), "revision": present_revision()}
        bench_report(
            name=self.bench,
            reason=self._steady.reason or "",
            facts=facts,
            tags=settings.BENCH_TAGS,
            simulates=settings.BENCH_SIMULATES,
        )

    def check_before_emulation(self) -> str:
        """One look right now; what it finds is believed at once, since a run was about to start."""
        reason = look()
        if reason:
            self._steady.know(reason)
            self.report()
        return reason

    def leave(self) -> None:
        """The worker ends."""
        bench_leaves(name=self.bench)

    def _emulates(self) -> bool:
        return Run.objects.filter(bench=self.bench, backend=Backend.MININET, state__in=ACTIVE).exists()

    def _probe(self) -> None:
        if not self._probing.acquire(blocking=False):
            return
        try:
            report = doctor_report(fresh=True)
            if settings.RUNNERD_EXPECTED and not report.privileged:
                # The runner starts again; what it found before still holds.
                self._probed = time.monotonic() - PROBE_EVERY_S + PROBE_AGAIN_S
                return
            bench_probed(name=self.bench, abilities=abilities_of(report), findings=findings_of(report))
        except Exception:
            logger.exception("the probes of bench %s failed; they are tried again", self.bench)
        finally:
            self._probing.release()
            close_old_connections()


def abilities_of(report: Report) -> dict[str, bool | str]:
    """By ability and part: True, or why not."""
    found = {finding.title: finding for finding in report.findings}
    missing = [f"{finding.title}: {finding.detail}" for finding in report.findings if finding.tone == "bad"]
    emulate: bool | str
    if not report.privileged:
        emulate = NO_RUNNER
    elif report.can_emulate:
        emulate = True
    else:
        emulate = missing[0] if missing else report.fault or "its doctor says no"
    docker = found.get("docker")
    containers = emulate is True and docker is not None and docker.tone == "ok"
    parts = {
        f"{kind}:{title.removeprefix(words)}": True
        for title in found
        for kind, words in (("interface", "interface "), ("rdma", "RDMA device "))
        if title.startswith(words)
    }
    return {
        Ability.EMULATE.value: emulate,
        Ability.CONTAINERS.value: containers or (docker.detail if docker else "no Docker was found"),
        **parts,
    }


def findings_of(report: Report) -> list[dict[str, str]]:
    """For the bench's page, the worst first."""
    return [
        {"tone": one.tone, "title": one.title, "detail": one.detail, "command": one.command} for one in report.findings
    ]
