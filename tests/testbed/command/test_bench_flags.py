"""What a bench may be called; `looplane worker` without what it shares with its console; where run folders are."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.command.bench_flags import BenchFlags, add_bench_arguments, read_bench_flags
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.installation import prepare_installation
from testbed.command.worker import check_environment


def read(*words: str, **caller: str) -> BenchFlags:
    parser = argparse.ArgumentParser()
    add_bench_arguments(parser, required=False)
    return read_bench_flags(parser.parse_args(words), caller)


def test_flags_win_over_the_environment() -> None:
    assert read("--bench", "lab-2", "--tags", "a, b,a", "--no-sim", LOOPLANE_BENCH="x") == ("lab-2", ("a", "b"), False)
    assert read(LOOPLANE_BENCH="x", LOOPLANE_BENCH_TAGS="t") == ("x", ("t",), True)
    assert read().environment() == {"LOOPLANE_BENCH_SIM": "1"}
    told = read("--bench", "x", "--tags", "a,b", "--no-sim").environment()
    assert told == {"LOOPLANE_BENCH": "x", "LOOPLANE_BENCH_TAGS": "a,b", "LOOPLANE_BENCH_SIM": "0"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bench", "Lab"), "--bench 'Lab'"),
        (("--bench", ""), "--bench ''"),
        (("--bench", "-a"), "--bench '-a'"),
        (("--bench", "a" * 41), "1 to 40"),
        (("--tags", "ok,NO"), "--tags 'NO'"),
        (("--tags", ",".join(f"t{number}" for number in range(21))), "at most 20"),
    ],
)
def test_bad_names_are_one_line(words: tuple[str, ...], said: str) -> None:
    words = (f"{words[0]}={words[1]}",)  # a value that begins with a dash
    with pytest.raises(CommandError) as caught:
        read(*words)
    assert said in str(caught.value)
    assert caught.value.code is ExitCode.BAD_INPUT


def outcome(code: str, **variables: Path) -> subprocess.CompletedProcess[str]:
    """The code in a process of its own, with these variables of Looplane's and no others."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLANE_")}
    environment = inherited | {name: str(value) for name, value in variables.items()}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_a_bench_names_what_it_shares(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"DATABASE_URL \(.*REDIS_URL \(.*LOOPLANE_RUNS \(") as caught:
        check_environment({})
    assert caught.value.code is ExitCode.BAD_INPUT
    code = """
from testbed.command.worker import check_environment
from testbed.command.exit_codes import CommandError
try:
    check_environment({"DATABASE_URL": "x", "REDIS_URL": "x", "LOOPLANE_RUNS": "x"})
except CommandError as fault:
    print(int(fault.code), fault)
"""
    printed = outcome(code, LOOPLANE_RUNS=tmp_path / "away").stdout
    assert printed.startswith(f"{int(ExitCode.HOST_CANNOT)} ")
    assert "away is not there" in printed


def test_run_folders_may_lie_elsewhere(tmp_path: Path) -> None:
    code = "from testbed.command.places import runs_folder; print(runs_folder())"
    state, shared = tmp_path / "state", tmp_path / "shared"
    assert outcome(code, LOOPLANE_STATE=state).stdout.strip() == str(state / "runs")
    assert outcome(code, LOOPLANE_STATE=state, LOOPLANE_RUNS=shared).stdout.strip() == str(shared)
    place = prepare_installation(state, shared, privileged=False)
    assert place.runs.is_dir()
    assert place.environment({})["LOOPLANE_RUNS"] == str(shared)
    assert not (state / "runs").exists()
