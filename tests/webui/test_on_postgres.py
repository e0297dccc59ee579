"""What rests on the database, once more on a real PostgreSQL: claims and turns, leases, keys, lists, rights, tables.

The console's other tests run on SQLite. Settings are read once in a process, so this is a pytest of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_servers import Postgres

HERE = Path(__file__).parent
CHOSEN = (
    "runs/test_services.py",
    "runs/test_execution.py",
    "runs/test_wishes.py",
    "runs/test_orphans.py",
    "runs/test_listing.py",
    "runs/test_sharing.py",
    "benches/test_leases.py",
    "benches/test_reports.py",
    "accounts/test_services.py",
    "accounts/test_limits.py",
    "api/test_runs.py",
    "api/test_listing.py",
    "settings/test_deployment.py::test_migrations_are_complete",
)
NO_LIMIT = "-c%20idle_in_transaction_session_timeout%3D0"
"""A test is one transaction, and a busy machine may leave it idle for long."""
FEWEST = 100
"""Tests that must have passed there, or the choice has lost its files."""


@pytest.mark.timeout(600)
def test_what_rests_on_the_database_holds_on_postgres(postgres_server: Postgres) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--maxfail=3", "-p", "no:cacheprovider"]
    words += [str(HERE / name) for name in CHOSEN]
    environment = {**os.environ, "LOOPLANE_TEST_DATABASE_URL": f"{postgres_server.url}?options={NO_LIMIT}"}
    # Where a test before this one has imported the console's programs: settings would be read before the address is.
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(words, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= FEWEST
