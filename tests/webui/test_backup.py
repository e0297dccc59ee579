"""The lines of docs/guide/operating.md for backup and restore, run as they stand, on an embedded database in use.

A whole console was put back by them by hand, on SQLite and on PostgreSQL; that takes minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "operating.md"
pytestmark = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs sqlite3 (apt-get install sqlite3)")


def blocks() -> list[str]:
    """The shell blocks of the section, in order: backup, restore, PostgreSQL."""
    section = GUIDE.read_text().split("## Backup and restore", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def carry_out(block: str, state: Path, backup: Path) -> None:
    """With other folders, and ourselves as the service user."""
    lines = block.replace("/var/lib/looplane", str(state)).replace("/backup", str(backup))
    lines = lines.replace("chown looplane:", f"chown {os.getuid()}:{os.getgid()}")
    done = subprocess.run(["sh", "-eu", "-c", lines], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_what_was_backed_up_in_use_is_back_after_a_crash(tmp_path: Path) -> None:
    state, backup = tmp_path / "state", tmp_path / "backup"
    for folder in (state / "db", state / "runs" / "one" / "events", backup):
        folder.mkdir(parents=True)
    (state / "db" / "secret_key").write_text("first")
    (state / "runs" / "one" / "events" / "bench.jsonl").write_text("{}\n")
    saved, restore, on_postgres = blocks()
    assert "pg_restore" in on_postgres
    database = state / "db" / "console.sqlite3"
    console = sqlite3.connect(database, isolation_level=None)
    console.execute("PRAGMA journal_mode=WAL")
    console.execute("CREATE TABLE run (id TEXT)")
    console.execute("INSERT INTO run VALUES ('one')")
    carry_out(saved, state, backup)

    console.execute("INSERT INTO run VALUES ('two')")
    console.execute("UPDATE run SET id = 'spoilt' WHERE id = 'one'")
    crashed = {path: path.read_bytes() for path in (state / "db").iterdir()}  # as kill -9 leaves it
    assert database.with_name("console.sqlite3-wal") in crashed
    console.close()
    for path, data in crashed.items():
        path.write_bytes(data)
    (state / "db" / "secret_key").write_text("second")
    shutil.rmtree(state / "runs" / "one")

    carry_out(restore, state, backup)
    with sqlite3.connect(database) as again:
        assert again.execute("SELECT id FROM run").fetchall() == [("one",)]
        assert again.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    again.close()
    assert (state / "db" / "secret_key").read_text() == "first"
    assert (state / "runs" / "one" / "events" / "bench.jsonl").read_text() == "{}\n"
