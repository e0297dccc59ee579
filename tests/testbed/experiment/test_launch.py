from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
from pathlib import Path

import pytest

from testbed.experiment.launch import LONGEST_LINE, launch_wall, note_end, prepare
from testbed.experiment.provenance import read_provenance
from testbed.experiment.reading import spec_from_bytes, spec_from_tables
from testbed.experiment.run_folder import RunFolder, RunFolderError, RunStatus

SMALLEST = b'name = "x"\ntitle = "X"\n[systems.blink]\nkind = "blink"\n'
SWEPT = SMALLEST + b'[systems.other]\nkind = "blink"\n[sweep]\n"workload.requests" = [3, 5]\n'


def test_one_trial_is_planned_in_the_run_folder_itself(tmp_path: Path) -> None:
    spec = spec_from_bytes(SMALLEST, "x.toml", ["seed=3"])
    run = prepare(spec, tmp_path, clock="wall", text=SMALLEST, overrides=["seed=3"], command=["looplane", "run"])
    folder = RunFolder.open(tmp_path / run.folder.name)
    assert run.trials == (run.folder,)
    assert folder.spec_toml.read_bytes() == SMALLEST
    assert spec_from_tables(folder.read_json(folder.spec_json), "spec.json") == spec
    assert folder.plan() == run.plans[0]
    assert (folder.plan().run, folder.plan().trial) == (folder.name, "")
    assert folder.name.endswith(folder.plan().label)
    assert folder.status() == RunStatus("preparing")
    provenance = read_provenance(folder.provenance_file.read_bytes())
    assert (provenance.overrides, provenance.command) == (("seed=3",), ("looplane", "run"))
    note_end(folder)
    assert read_provenance(folder.provenance_file.read_bytes()).finished is not None


def test_many_trials_are_run_folders_of_their_own(tmp_path: Path) -> None:
    spec = spec_from_bytes(SWEPT, "x.toml")
    run = prepare(spec, tmp_path, clock="simulated")
    assert not run.folder.plan_file.exists()
    names = ["blink-requests=3", "other-requests=3", "blink-requests=5", "other-requests=5"]
    assert [trial.name for trial in run.folder.trials()] == names
    plans = [trial.plan() for trial in run.folder.trials()]
    assert [plan.trial for plan in plans] == names
    assert [plan.system for plan in plans] == ["blink", "other"] * 2
    assert [plan.workload["requests"] for plan in plans] == [3, 3, 5, 5]
    assert [plan.point for plan in plans] == [{"workload.requests": n} for n in (3, 3, 5, 5)]
    assert len({plan.label for plan in plans}) == 4
    assert len({plan.seed for plan in plans}) == 4
    assert len({plan.workload_seed for plan in plans}) == 1
    for trial in run.trials:
        RunFolder.open(trial.path)
        assert spec_from_tables(trial.read_json(trial.spec_json), "x").workload.requests in (3, 5)


def test_a_run_of_the_same_id_is_refused(tmp_path: Path) -> None:
    spec = spec_from_bytes(SMALLEST, "x.toml")
    prepare(spec, tmp_path, clock="simulated", run="20260101-000000-0a1b2c")
    with pytest.raises(RunFolderError, match="never used twice"):
        prepare(spec, tmp_path, clock="simulated", run="20260101-000000-0a1b2c")
    with pytest.raises(ValueError, match="no run id"):
        prepare(spec, tmp_path, clock="simulated", run="mine")


# --- the bench's process: a small program in its place, started as the real one is ----------------------------------


def bench(folder: Path, program: str) -> str:
    """An interpreter that runs `program` whatever it is told to run; the words it got are in words.json."""
    path = folder / "bench"
    path.write_text(
        "#!/usr/bin/env python3\nimport json, os, pathlib, signal, sys, time\n"
        f"pathlib.Path({str(folder / 'words.json')!r}).write_text(json.dumps(sys.argv[1:]))\n{program}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_bench_is_told_the_folder_and_its_words_come_through(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    program = "print('network', flush=True)\nprint()\nprint('no room', file=sys.stderr)\nsys.exit(3)"
    lines: list[str] = []
    end = launch_wall(folder, progress=lines.append, python=bench(tmp_path, program))
    assert (end.code, end.last_words, end.signalled) == (3, "no room", False)
    assert lines == ["network", "no room"]
    words = ["-m", "topologies", "run", str(folder.path), "--starter", str(os.getpid())]
    assert json.loads((tmp_path / "words.json").read_text()) == words


def test_bytes_that_are_no_text_are_no_crash(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    program = "sys.stdout.buffer.write(b'\\xff\\xfe\\n')"
    assert launch_wall(folder, python=bench(tmp_path, program)).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_go_on_to_the_bench_which_may_take_its_time(tmp_path: Path, number: signal.Signals) -> None:
    folder = RunFolder.create(tmp_path, "run")
    program = (
        "def end(number, frame):\n    print('cleaned after', number, flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGINT, end)\nsignal.signal(signal.SIGTERM, end)\n"
        "print('running', flush=True)\ntime.sleep(30)\n"
    )
    before = signal.getsignal(number)

    def interrupt(line: str) -> None:
        if line == "running":
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()

    started = time.monotonic()
    end = launch_wall(folder, progress=interrupt, python=bench(tmp_path, program))
    assert (end.code, end.last_words, end.signalled) == (0, f"cleaned after {int(number)}", True)
    assert signal.getsignal(number) == before
    assert time.monotonic() - started < 25


def test_a_bench_whose_listener_fails_is_ended(tmp_path: Path) -> None:
    program = (
        "def end(number, frame):\n"
        f"    pathlib.Path({str(tmp_path / 'ended')!r}).write_text('x')\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('running', flush=True)\ntime.sleep(30)\n"
    )

    def fail(line: str) -> None:
        raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError):
        launch_wall(RunFolder.create(tmp_path, "run"), progress=fail, python=bench(tmp_path, program))
    assert (tmp_path / "ended").exists()


def test_a_process_left_behind_with_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A bench that is killed may leave processes that hold its standard output."""
    program = (
        "child = os.fork()\nif child == 0:\n    time.sleep(20)\n    os._exit(0)\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child))\n"
        "print('last', end='', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    started = time.monotonic()
    try:
        end = launch_wall(RunFolder.create(tmp_path, "run"), python=bench(tmp_path, program))
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (end.code, end.last_words) == (-signal.SIGKILL, "last")
    assert time.monotonic() - started < 15


def test_a_huge_line_comes_in_pieces(tmp_path: Path) -> None:
    lines: list[str] = []
    program = "print('x' * 200_000)"
    launch_wall(RunFolder.create(tmp_path, "run"), progress=lines.append, python=bench(tmp_path, program))
    assert sum(map(len, lines)) == 200_000
    assert max(map(len, lines)) <= 2 * LONGEST_LINE


def test_a_bench_that_cannot_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        launch_wall(RunFolder.create(tmp_path, "run"), python=str(tmp_path / "none"))
