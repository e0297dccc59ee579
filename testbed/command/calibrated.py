"""The wire profile that a self-test of this host has left, where it is kept, and when it is good.

`calibration.json` in the state folder, readable by all, since a plan may be made by a user who cannot measure. It is
good for this boot, core count, kernel and wire code, for seven days; anything else is taken as no profile. What
measures is `topologies.calibration`, as a process.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from testbed.command.places import SOURCE, state_folder
from testbed.command.telling import say
from testbed.experiment.run_folder import write_whole
from testbed.network.wire_profile import MEASURED_SOURCE, MODELLED, WireProfile

AGE_LIMIT = timedelta(days=7)
PATIENCE_S = 60.0
"""For the whole self-test, which takes about eight seconds."""
_NAME = "calibration.json"


class HostIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a profile depends on."""

    boot: str
    cores: int
    kernel: str
    code: str
    """Digest of the sources of NIC, wire and self-test."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    host: HostIdentity
    profile: WireProfile


def this_host() -> HostIdentity:
    """The identity of this host and source tree."""
    digest = hashlib.sha256()
    for folder in ("emulators", "testbed/network", "topologies"):
        for path in sorted((SOURCE / folder).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return HostIdentity(boot, os.cpu_count() or 1, platform.release(), digest.hexdigest())


def keep(profile: WireProfile) -> Path:
    """Writes the file and returns its path. Raises OSError."""
    path = state_folder() / _NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.format(msgspec.json.encode(Kept(this_host(), profile)), indent=1) + b"\n")
    path.chmod(0o644)
    return path


def kept(now: datetime | None = None) -> WireProfile | None:
    """The profile of this host, if a good one is kept; of another user's files only root's is believed."""
    for path in (state_folder() / _NAME, Path("/var/lib/looplane") / _NAME):
        with suppress(OSError, msgspec.MsgspecError, ValueError):
            if path.stat().st_uid not in (0, os.geteuid()):
                continue
            found = msgspec.json.decode(path.read_bytes(), type=Kept)
            age = (now or datetime.now(UTC)) - datetime.fromisoformat(found.profile.measured_at)
            sane = found.profile.packets_per_s > 0 and found.profile.source == MEASURED_SOURCE
            if sane and found.host == this_host() and timedelta(0) <= age <= AGE_LIMIT:
                return found.profile
    return None


def age_hours(profile: WireProfile) -> float:
    """Hours since a measured profile was measured."""
    return (datetime.now(UTC) - datetime.fromisoformat(profile.measured_at)) / timedelta(hours=1)


def profile_for_a_run() -> WireProfile:
    """The kept profile; else a new one; else the modelled one, with the reason told."""
    profile = kept()
    if profile is None:
        say("no fresh wire profile of this host: measuring it")
        words = [sys.executable, "-m", "topologies", "calibrate"]
        try:
            done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            profile = kept() if done.returncode == 0 else None
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        except subprocess.TimeoutExpired:
            why = f"not done after {PATIENCE_S:.0f} s"
        if profile is None:
            say(f"the host could not be measured ({why}): the modelled wire profile is used")
            profile = MODELLED
    return profile  # which one it is stands in the plan's notes, hence in the report
