"""A neighbour's work is real, is counted, and ends with everything that it has started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulators import interference
from emulators.interference import CannotWork, churn, compressions, text

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running = []

    def begin(kind: str, *, threads: int = 2, limit_s: float = 60, path: str | None = None) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "emulators.interference", "--kind", kind, "--threads", str(threads)]
        words += ["--working-set-mib", "4", "--report", str(tmp_path / "report.json"), "--limit-s", str(limit_s)]
        environment = {**os.environ, **({"PATH": path} if path is not None else {})}
        process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, start_new_session=True)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def report(folder: Path, least: float = 0.0) -> dict[str, object]:
    """The report, once it says that more than `least` is done."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        path = folder / "report.json"
        if path.exists() and (found := json.loads(path.read_bytes()))["done"] > least:
            return dict(found)
        time.sleep(0.02)
    raise AssertionError("nothing was done")


def session(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def gone(leader: int) -> bool:
    end = time.monotonic() + 5
    while session(leader) and time.monotonic() < end:
        time.sleep(0.02)
    return not session(leader)


@pytest.mark.parametrize(("kind", "unit"), [("pbzip2", "MB"), ("compile", "files"), ("memory", "mappings")])
def test_work_is_done_and_counted_and_ends_with_all_its_children(
    start: Start, tmp_path: Path, kind: str, unit: str
) -> None:
    process = start(kind)
    first = report(tmp_path)
    assert first["unit"] == unit
    assert first["program"]
    assert report(tmp_path, least=float(str(first["done"]))) != first, "it goes on"
    assert len(session(process.pid)) > 1, "the work is that of other programs or processes"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert gone(process.pid)


@pytest.mark.parametrize("kind", ["pbzip2", "compile", "memory"])
def test_a_neighbour_that_is_killed_takes_its_children_along(start: Start, tmp_path: Path, kind: str) -> None:
    process = start(kind)
    report(tmp_path)
    process.kill()
    assert gone(process.pid)


def test_it_ends_by_itself_at_its_limit_and_when_the_run_is_gone(start: Start, tmp_path: Path) -> None:
    assert start("memory", limit_s=0.5).wait(20) == 0
    process = start("memory")
    report(tmp_path)
    shutil.rmtree(tmp_path)
    assert process.wait(20) == 0


def test_without_pbzip2_pythons_own_bz2_does_it_and_says_so(start: Start, tmp_path: Path) -> None:
    process = start("pbzip2", path="/nowhere")
    assert report(tmp_path)["program"] == "Python's bz2"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert gone(process.pid)


def test_without_a_compiler_it_says_what_to_install(start: Start) -> None:
    process = start("compile", path="/nowhere")
    _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert b"apt-get install make tcc" in said


def test_every_run_does_the_same_work() -> None:
    assert text(100_000) == text(200_000)[:100_000]
    assert len(set(text(50_000).split())) > 500
    assert compressions(text(1 << 20))() == pytest.approx(0.9)
    assert churn(1 << 20)() == 1.0


def test_sources_compile_to_the_same_objects_every_time(tmp_path: Path) -> None:
    interference.write_sources(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    interference.write_sources(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert len(before) > 20


def test_kinds_are_those_of_an_experiment() -> None:
    from typing import get_args, get_type_hints

    from testbed.experiment.spec import NeighbourSpec

    assert set(interference.KINDS) == set(get_args(get_type_hints(NeighbourSpec)["kind"]))
    assert issubclass(CannotWork, Exception)


def test_a_report_that_cannot_be_written_ends_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ["--kind", "memory", "--threads", "1", "--working-set-mib", "4", "--limit-s", "30"]
    words += ["--report", str(tmp_path / "file" / "report.json")]
    command = [sys.executable, "-m", "emulators.interference", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("neighbour: ")
    assert "Not a directory" in line
