"""A bench's own check: whether it can take runs right now, and if not, why. Carried out by its worker.

Quick checks every few seconds; the doctor's probes every few minutes, and never beside an emulation, whose timing they
would spoil. A worker starts with no opinion, so nothing that was found before a restart lives on (fault E6), and one
bad look among good ones changes nothing (fault E12).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection
from django.utils import timezone

from webui.benches.console import folder_fault
from webui.runs.bench import ask_runnerd

LOOKS = 2
"""So many looks in a row must agree before a bench's standing changes."""
CLOCK_OFF_S = 2.0
RUNNERD_PATIENCE_S = 3.0


@dataclass
class Steadiness:
    """What is believed of a bench, given one look after the other."""

    reason: str | None = None
    """Believed; empty: it is well. None: nothing was seen yet."""
    _seen: int = 0

    def saw(self, reason: str) -> str:
        """One look; what is believed after it."""
        if self.reason is None or bool(reason) == bool(self.reason):
            self.reason, self._seen = reason, 0
            return reason
        self._seen = self._seen + 1
        if self._seen >= LOOKS:
            self.reason, self._seen = reason, 0
        return self.reason

    def know(self, reason: str) -> str:
        """Something that is certain after one look: an emulation could not be started."""
        self.reason, self._seen = reason, 0
        return reason


def look() -> str:
    """Why this machine cannot take runs right now; empty if it can. The first reason that is found."""
    for check in CHECKS:
        if reason := check():
            return reason
    return ""


def runs_folder_fault() -> str:
    """The folder of runs must be the console's, and take what the worker writes."""
    reason = folder_fault()
    if reason:
        return reason
    try:
        with tempfile.TemporaryDirectory(prefix=".try-", dir=settings.RUNS_FOLDER):
            return ""
    except OSError as fault:
        return f"its folder of runs takes no new run ({fault.strerror})"


def disk_fault() -> str:
    """Space for at least one more run."""
    free = disk_free_mib()
    if free is not None and free < settings.BENCH_LEAST_DISK_MIB:
        return f"{free} MiB of disk are left for runs, below {settings.BENCH_LEAST_DISK_MIB}"
    return ""


def disk_free_mib() -> int | None:
    """Of the folder of runs; None if it cannot be asked."""
    try:
        return shutil.disk_usage(settings.RUNS_FOLDER).free >> 20
    except OSError:
        return None


def runnerd_fault() -> str:
    """Where the supervisor keeps a privileged runner, it must answer."""
    if not settings.RUNNERD_EXPECTED:
        return ""
    try:
        ask_runnerd("status", patience_s=RUNNERD_PATIENCE_S)
    except OSError:
        return "its privileged runner does not answer"
    return ""


def clock_fault() -> str:
    """Leases and time limits are compared with the database's machine; SQLite is on this one."""
    if connection.vendor != "postgresql":
        return ""
    with connection.cursor() as cursor:
        asked = time.monotonic()
        cursor.execute("SELECT clock_timestamp()")
        told: datetime = cursor.fetchone()[0]
        took = time.monotonic() - asked
    off = abs((timezone.now() - told).total_seconds()) - took
    return f"its clock is {off:.1f} s off the console's" if off > CLOCK_OFF_S else ""


CHECKS: tuple[Callable[[], str], ...] = (runs_folder_fault, disk_fault, runnerd_fault, clock_fault)


def machine_facts(*, threads: int) -> dict[str, object]:
    """What a bench tells people of its machine. `threads`: tasks that its worker carries at once."""
    cores = os.cpu_count() or 1
    return {
        "cores": cores,
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "machine": os.uname().machine,
        "disk_free_mib": disk_free_mib(),
        # A simulation takes one core; one stays for the console.
        "slots": max(1, min(cores - 1, threads)),
        "emulates_elsewhere": emulates_elsewhere(),
    }


def emulates_elsewhere() -> bool:
    """Whether a command, or another console, emulates on this machine: this bench's emulations wait for its end."""
    if not settings.RUNNERD_EXPECTED:
        return False
    try:
        return ask_runnerd("status", patience_s=RUNNERD_PATIENCE_S).get("elsewhere") is True
    except OSError:  # that it does not answer is said by `runnerd_fault`
        return False
