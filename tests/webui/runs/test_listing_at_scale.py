"""The list over many runs, on SQLite and on a real PostgreSQL: 100,000 of them with --soak, as the issue asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from testbed.command.places import SOURCE

ALLOWED_MS = 300


def pages_over(number: int, state: Path, **environment: str) -> dict[str, Any]:
    """The pages' times and queries over so many runs."""
    for name in ("db", "runs", "run", "log"):
        (state / name).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.webui.runs.fill_index", str(number)]
    done = subprocess.run(
        command, cwd=SOURCE, env={**os.environ, "LOOPLANE_STATE": str(state), **environment},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)["pages"]
    return found


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_list_is_quick_over_a_hundred_thousand_runs(
    database: str, tmp_path: Path, soak: bool, soak_note: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    url = {}
    if database == "postgres":
        url = {"DATABASE_URL": request.getfixturevalue("postgres_server").create("listing")}
    number = 100_000 if soak else 1_000
    pages = pages_over(number, tmp_path / "state", **url)
    assert pages["admin /runs"]["rows"] == 50
    assert pages["admin /runs?text=rareword"]["rows"] == 1
    assert all(1 <= told["queries"] <= 12 for told in pages.values()), pages
    worst = max(pages, key=lambda name: median(pages[name]["ms"]))
    middle, most = median(pages[worst]["ms"]), max(pages[worst]["ms"])
    typical = median(median(told["ms"]) for told in pages.values())
    soak_note(
        f"{number} runs on {database}: list and search, {len(pages)} pages of three roles: median {typical:.0f} ms; "
        f"slowest {worst}: median {middle:.0f} ms, most {most:.0f} ms; at most "
        f"{max(told['queries'] for told in pages.values())} queries"
    )
    if soak:
        assert middle < ALLOWED_MS, f"{worst}: {pages[worst]}"
