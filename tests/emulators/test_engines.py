"""Processes of prefill, decode and scheduler nodes: a run folder that cannot be read is one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("role", ["prefill", "decode", "scheduler"])
def test_a_run_folder_that_cannot_be_read_is_one_line(role: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"emulators.{role}", "--run", str(tmp_path / "none"), "--node", "pe0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / "none") in line
    assert not list(tmp_path.iterdir()), "nothing is left behind"
