"""The host itself misbehaves: disks that are full or read-only, folders taken away, firewalls, a power cut, two starts.

Known faults A8, A10, B8, B9, B11, each named where it is shown.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accidents import SMALL, TOP, clean, host_state, leftovers
from whole_run import BenchProcess

from topologies.naming import RUN_ROOT

pytestmark = [pytest.mark.root]
NAMESPACES = 'nodes="namespace"'
MANY = "workload.requests=4000"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def start(parent: Path, *words: str, prefix: tuple[str, ...] = (), run_id: str = "") -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-m", "testbed.command", "run", str(SMALL), "--on", "mininet", "--json",
               "--out", str(parent), "--set", NAMESPACES, *words]  # fmt: skip
    command += ["--run-id", run_id] if run_id else []
    return subprocess.Popen(command, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def faults(err: str) -> list[str]:
    """The lines that tell of a fault; a host without a fresh wire profile also says that it measures one."""
    progress = ("no fresh wire profile", "the host could not be measured")
    return [line for line in err.strip().splitlines() if not line.startswith(progress)]


def new_id() -> str:
    return f"20260102-030405-{secrets.token_hex(3)}"


def until(there: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_disk_that_fills_up_ends_the_run_with_one_clear_line(disk: Path) -> None:
    before, run = host_state.snapshot(), new_id()
    label, folder = run.rpartition("-")[2], disk / run
    process = start(disk, "--set", MANY, run_id=run)
    until(lambda: (folder / "control" / "start.json").exists(), process)
    room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "filler").write_bytes(bytes(max(0, room - 200_000)))
    _, err = process.communicate(timeout=90)
    assert process.returncode == 4, err
    assert err.splitlines()[-1] == f"looplane: {folder}: No space left on device" or (
        "No space left on device" in err.splitlines()[-1] and str(disk) in err.splitlines()[-1]
    ), err
    assert "Traceback" not in err.splitlines()[-1]
    assert (folder / "events" / "bench.jsonl").stat().st_size > 0
    assert leftovers(before, label) == []


@pytest.mark.parametrize("room", [0, 20_000])
def test_a_disk_that_is_full_before_the_start_is_one_line(disk: Path, room: int) -> None:
    """No page left, or a few: not enough for the plan, or for what the bench writes before anything runs."""
    before, run = host_state.snapshot(), new_id()
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "filler").write_bytes(bytes(free - room))
    process = start(disk, run_id=run)
    _, err = process.communicate(timeout=90)
    assert process.returncode in (2, 4), err
    assert "Traceback" not in err
    assert "No space left on device" in faults(err)[-1], err
    assert leftovers(before, run.rpartition("-")[2]) == []


def test_a_disk_that_is_full_at_the_end_keeps_what_there_is(disk: Path) -> None:
    """All requests are answered, then there is no room for the judgement: the log is whole up to there."""
    before, run = host_state.snapshot(), new_id()
    folder = disk / run
    process = start(disk, run_id=run)
    until(lambda: (folder / "control" / "client0.done").exists(), process)
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "filler").write_bytes(bytes(free))
    _, err = process.communicate(timeout=90)
    assert "Traceback" not in err
    assert process.returncode == 4, err
    assert "No space left on device" in faults(err)[-1], err
    assert b'"request.finished"' in (folder / "events" / "client0.jsonl").read_bytes()
    assert leftovers(before, run.rpartition("-")[2]) == []


def test_a_run_folder_that_is_taken_away_ends_the_run(tmp_path: Path) -> None:
    before, run = host_state.snapshot(), new_id()
    process = start(tmp_path, "--set", MANY, run_id=run)
    until(lambda: (tmp_path / run / "control" / "start.json").exists(), process)
    shutil.rmtree(tmp_path / run, ignore_errors=True)
    shutil.rmtree(tmp_path / run, ignore_errors=True)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 4, err
    assert str(tmp_path / run) in err
    assert leftovers(before, run.rpartition("-")[2]) == []


def test_a_read_only_place_for_runs_is_one_line(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    process = start(disk)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (2, 4)
    (told,) = faults(err)
    assert "Read-only file system" in told


def test_no_room_for_the_record_of_a_run(tmp_path: Path) -> None:
    """/run/looplane of this run alone, in a mount namespace of its own, is full."""
    script = f"mkdir -p {RUN_ROOT}; mount -t tmpfs -o size=16k,nr_inodes=4 none {RUN_ROOT} && exec \"$@\""
    process = start(tmp_path, prefix=("unshare", "--mount", "sh", "-c", script, "sh"))
    out, err = process.communicate(timeout=90)
    assert process.returncode == 4, err
    assert "No space left on device" in json.loads(out)["detail"]


@pytest.mark.parametrize("rules", ["iptables -P FORWARD DROP; ip6tables -P FORWARD DROP; iptables -P INPUT DROP"])
def test_the_hosts_firewall_does_not_reach_a_runs_networks(tmp_path: Path, rules: str) -> None:
    """Docker's policies, and bridges that call iptables, in a host network of the test's own (B8, B9, B11)."""
    call = "/proc/sys/net/bridge/bridge-nf-call-iptables"
    script = f"ip link set lo up; {rules}; [ ! -e {call} ] || echo 1 > {call}; exec \"$@\""
    process = start(tmp_path, prefix=("unshare", "--net", "sh", "-c", script, "sh"))
    out, err = process.communicate(timeout=90)
    assert out, err
    assert json.loads(out)["systems"]["blink"]["requests"]["completed"] == 8


def test_after_a_power_cut_the_run_is_lost_and_reaped(prepare_run: Callable[..., Path]) -> None:
    """Processes and namespaces are gone, files are left, and the record is of another boot (A8)."""
    before, folder = host_state.snapshot(), prepare_run("small.toml", MANY, NAMESPACES)
    label = folder.name.rpartition("-")[2]
    bench = BenchProcess(folder)
    bench.wait_for("start.json")
    record = RUN_ROOT / label / "run.json"
    text = record.read_text()
    os.kill(bench.process.pid, signal.SIGKILL)
    bench.end(10)
    told = json.loads(text)
    told["owner"]["boot"] = "0" * 36
    record.write_text(json.dumps(told))
    named = [line.removeprefix("would remove ") for line in clean("--dry-run") if label in line]
    assert f"record {RUN_ROOT}/{label} of run {label}" in named
    assert [line.removeprefix("removed ") for line in clean() if label in line] == named
    assert json.loads((folder / "control" / "bench.json").read_text())["outcome"] == "lost"
    assert not any(label in line for line in clean())
    assert leftovers(before, label) == []


def test_a_second_bench_on_a_folder_is_refused_and_the_first_goes_on(
    prepare_run: Callable[..., Path], start_bench: Callable[..., BenchProcess]
) -> None:
    """A10: nothing of the first one's barrier is touched."""
    folder = prepare_run("small.toml", MANY, NAMESPACES)
    first = start_bench(folder)
    first.wait_for("start.json")
    files = sorted(path.name for path in (folder / "control").iterdir())
    second = start_bench(folder)
    second.output = folder.parent / "second.txt"
    assert second.end(60) == 2
    assert set(files) <= {path.name for path in (folder / "control").iterdir()}
    assert first.process.poll() is None
    assert not (folder / "control" / "bench.json").exists()


def test_two_commands_into_one_folder_are_one_run(tmp_path: Path) -> None:
    run = new_id()
    both = [start(tmp_path, run_id=run) for _ in range(2)]
    ends = [(process.communicate(timeout=120), process.returncode) for process in both]
    (refused,) = [err for (out, err), code in ends if code == 2]
    (words,) = faults(refused)
    assert run in words
    (told,) = [json.loads(out) for (out, _), code in ends if code != 2]
    assert told["systems"]["blink"]["requests"]["completed"] == 8


@pytest.mark.soak
def test_several_runs_of_one_lab_at_once(tmp_path: Path, soak: bool, soak_note: Callable[[str], None]) -> None:
    count, before = (8 if soak else 3), host_state.snapshot()
    processes = [start(tmp_path) for _ in range(count)]
    told = []
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert out, err
        told.append(json.loads(out))
    assert len({run["run"] for run in told}) == count
    # Whether the machine kept up is the verdict's to say; all requests of all runs come to an end all the same.
    assert [run["systems"]["blink"]["requests"]["completed"] for run in told] == [8] * count
    verdicts = [run["fidelity"]["verdict"] for run in told]
    for run in told:
        assert leftovers(before, run["run"].rpartition("-")[2]) == []
    soak_note(f"{count} runs at once: all completed, verdicts {', '.join(verdicts)}, leftovers 0")
