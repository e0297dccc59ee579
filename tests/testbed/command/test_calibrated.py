"""The kept wire profile: good only for this host, this code and seven days."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from testbed.command import calibrated
from testbed.command.places import SOURCE
from testbed.network.wire_profile import MEASURED_SOURCE, MODELLED, WireProfile

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def profile() -> WireProfile:
    # Far from the present, so that a profile of this very host is too young or too old to be taken instead.
    return msgspec.structs.replace(MODELLED, source=MEASURED_SOURCE, measured_at=NOW.isoformat())


@pytest.fixture(autouse=True)
def state(tmp_path: Path) -> object:
    before = os.environ.get("LOOPLANE_STATE")
    os.environ["LOOPLANE_STATE"] = str(tmp_path)
    yield
    if before is None:
        del os.environ["LOOPLANE_STATE"]
    else:
        os.environ["LOOPLANE_STATE"] = before


def test_what_is_kept_is_found_and_all_may_read_it(profile: WireProfile) -> None:
    assert calibrated.keep(profile).stat().st_mode & 0o777 == 0o644
    assert calibrated.kept(NOW + timedelta(days=6)) == profile


@pytest.mark.parametrize("later", [timedelta(days=8), timedelta(hours=-1)])
def test_a_profile_too_old_or_of_the_future_is_none(profile: WireProfile, later: timedelta) -> None:
    calibrated.keep(profile)
    assert calibrated.kept(NOW + later) is None


@pytest.mark.parametrize("field", ["boot", "cores", "kernel", "code"])
def test_a_profile_of_another_host_is_none(profile: WireProfile, field: str) -> None:
    path = calibrated.keep(profile)
    tables = msgspec.json.decode(path.read_bytes())
    tables["host"][field] = 99 if field == "cores" else "other"
    path.write_bytes(msgspec.json.encode(tables))
    assert calibrated.kept(NOW) is None


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"host": 1}'])
def test_a_corrupted_file_is_none(profile: WireProfile, data: bytes) -> None:
    calibrated.keep(profile).write_bytes(data)
    assert calibrated.kept(NOW) is None


def test_doctor_shows_the_profile_with_its_spread(profile: WireProfile) -> None:
    """Fault C18: how far round trips spread on this very host stands in doctor's last line, with its age."""
    taken = msgspec.structs.replace(profile, measured_at=datetime.now(UTC).isoformat(timespec="seconds"))
    calibrated.keep(taken)
    words = [sys.executable, "-m", "testbed.command", "doctor"]
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, check=False, timeout=60)
    line = done.stdout.splitlines()[-1]
    assert line.startswith(f"wire profile, {MEASURED_SOURCE}")
    assert "READ of 64 bytes 110 us (p99 250 us)" in line
    assert line.endswith("0.0 h old; renew it with ./looplane calibrate")
