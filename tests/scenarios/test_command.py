"""The looplane command as a user and as CI meet it: what it prints, what it leaves, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from testbed.command.__main__ import VERBS

TOP = Path(__file__).resolve().parents[2]
SMALL = TOP / "fixtures" / "experiments" / "blink" / "small.toml"
QUICK = ("--set", "workload.requests=2")


def looplane(*words: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "testbed.command", *words],
        cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP), **environment}, input=stdin, capture_output=True,
        check=False, timeout=120,
    )  # fmt: skip


def run_json(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = looplane("run", str(SMALL), "--out", str(tmp_path), "--json", *words)
    return done.returncode, json.loads(done.stdout)


# --- every verb helps, and an unknown one is told -------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str) -> None:
    done = looplane(verb, "--help")
    assert done.returncode == 0
    assert f"usage: looplane {verb}".encode() in done.stdout


def test_help_names_every_verb_and_the_exit_codes() -> None:
    told = looplane("help").stdout.decode()
    assert all(verb in told for verb in VERBS)
    assert "3 this host cannot" in told


def test_an_unknown_verb_is_bad_input() -> None:
    done = looplane("nonsense")
    assert done.returncode == 2
    assert b"nonsense" in done.stderr


def test_the_launcher_hands_over() -> None:
    assert subprocess.run(["sh", "-n", str(TOP / "looplane")], check=False).returncode == 0
    environment = {**os.environ, "LOOPLANE_VENV": sys.prefix}
    if not Path(sys.prefix, "complete").exists():
        pytest.skip("these tests do not run in an environment that the launcher made")
    done = subprocess.run([str(TOP / "looplane"), "validate", str(SMALL)], env=environment, capture_output=True,
                          check=False, timeout=60)  # fmt: skip
    assert (done.returncode, b"ok, 1 trial" in done.stdout) == (0, True)


# --- run, report, export --------------------------------------------------------------------------------------------


def test_run_prints_one_object_with_what_ci_needs(tmp_path: Path) -> None:
    code, told = run_json(tmp_path)
    assert code == 0
    assert Path(told["folder"]).name == told["run"]
    assert told["outcome"] == "passed"
    assert told["fidelity"]["verdict"] == "faithful"
    assert told["fidelity"]["reasons"] == []
    system = told["systems"]["blink"]
    for latency in ("ttft_ms", "ttst_ms", "itl_ms", "tpot_ms"):
        assert {"p50", "p99", "p999", "n"} <= set(system[latency])
    assert system["ttft_ms"]["p50"] > 0
    assert system["ttft_ms"]["p99"] is None, "eight requests are too few for a p99"
    assert (system["requests"]["sent"], system["requests"]["completed"], system["requests"]["failed"]) == (8, 8, 0)
    assert system["throughput_tokens_per_s"] > 0
    assert all({"text", "measured", "bound", "held"} <= set(row) for row in told["expectations"])


def test_an_expectation_that_fails_is_exit_1(tmp_path: Path) -> None:
    code, told = run_json(tmp_path, *QUICK)
    assert (code, told["outcome"]) == (1, "failed")
    broken = [row for row in told["expectations"] if not row["held"]]
    assert [row["measured"] for row in broken] == [2]


def test_two_systems_and_a_sweep_are_trials_of_one_run(tmp_path: Path) -> None:
    spec = SMALL.read_bytes().split(b"[expect]")[0]
    spec += b'[systems.narrow]\nkind = "blink"\nmax_batch = 2\n[sweep]\n"workload.arrivals.rate_per_s" = [10, 40]\n'
    done = looplane("run", "-", "--out", str(tmp_path), "--json", *QUICK, stdin=spec)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["trials"]) == 4
    assert len(told["systems"]) == 4
    assert (Path(told["folder"]) / "report" / "index.html").is_file()


def test_report_and_exports_of_a_run(tmp_path: Path) -> None:
    _, told = run_json(tmp_path)
    folder = told["folder"]
    Path(folder, "summary.json").unlink()
    again = looplane("report", folder, "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["systems"] == told["systems"]
    trace = json.loads(looplane("export", folder, "--format", "perfetto").stdout)
    assert {event["ph"] for event in trace["traceEvents"]} >= {"X", "M", "C"}
    assert json.loads(looplane("export", folder, "--format", "json").stdout)
    suite = ElementTree.fromstring(looplane("export", folder, "--format", "junit").stdout)
    assert suite.iter("testcase")
    assert looplane("export", folder, "--format", "csv", "--out", str(tmp_path / "csv")).returncode == 0
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == ["requests.csv", "tokens.csv"]


def test_the_last_run_is_found_by_name(tmp_path: Path) -> None:
    state = {"LOOPLANE_STATE": str(tmp_path)}
    assert looplane("report", "last", **state).returncode == 2
    assert looplane("run", str(SMALL), **state).returncode == 0
    assert looplane("report", "last", **state).returncode == 0


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "none.toml"), "none.toml: the file: No such file"),
        (("run", "fixtures"), "fixtures: the file: Is a directory: a TOML file"),
        (("run", "/dev/zero"), "/dev/zero: the file: no regular file"),
        (("validate", "/dev/zero"), "/dev/zero: the file: no regular file"),
        (("run", str(SMALL), "--set", "workload.requests=many"), "workload.requests"),
        (("validate", "none.toml", str(SMALL)), "none.toml"),
        (("run", str(SMALL), "--run-id", "../../etc"), "run id"),
        (("run", str(SMALL), "--run-id", "../../etc", "--set", "repeats=2"), "run id"),
        (("report", "none"), "none"),
        (("export", "none", "--format", "csv"), "none"),
        (("bench", "nothing"), "allowed: ring_scan_4096"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: tuple[str, ...], said: str) -> None:
    done = looplane(*words)
    lines = done.stderr.decode().strip().splitlines()
    assert done.returncode == 2
    assert len(lines) == 1
    assert said in lines[0]


def test_without_root_mininet_is_exit_3_and_nothing_is_made(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.setgid(65534); os.setuid(65534)\n"
        "from testbed.command.__main__ import main\n"
        f"sys.exit(main(['run', {str(SMALL)!r}, '--on', 'mininet', '--out', {str(tmp_path)!r}]))"
    )
    if os.geteuid() != 0:
        pytest.skip("needs root, to give it away")
    if not os.access(TOP, os.R_OK) or subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "test", "-r", str(SMALL)], check=False
    ).returncode:
        script = script.replace("import os, sys;", "import os, sys; import testbed.command.run;")
    done = subprocess.run([sys.executable, "-c", script], cwd=TOP, capture_output=True, check=False, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(TOP)})  # fmt: skip
    if b"Permission denied" in done.stderr:
        pytest.skip("this clone is closed to other users")
    assert done.returncode == 3
    assert b"needs root" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_the_run_and_says_so(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it mounts a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=True)
    try:
        done = looplane("run", str(SMALL), "--out", str(tmp_path))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert done.returncode == 4
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_pipe_is_no_experiment_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert looplane("validate", str(tmp_path / "pipe")).returncode == 2


def test_a_damaged_run_folder_is_bad_input(tmp_path: Path) -> None:
    _, told = run_json(tmp_path)
    folder = Path(told["folder"])
    log = folder / "events" / "dpu0.jsonl"
    good = log.read_bytes()
    log.write_bytes(good.replace(b'"seq":5,', b'"seq":five,'))
    done = looplane("report", str(folder))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    log.write_bytes(good)
    (folder / "provenance.json").unlink()
    assert looplane("report", str(folder)).returncode == 0
    assert "missing or damaged" in (folder / "report" / "index.html").read_text()


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "testbed.command", "run", str(SMALL), "--out", str(tmp_path), "--set", "repeats=3"]
    process = subprocess.Popen(words, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=60)
    (told,) = tmp_path.glob("*/control/outcome.json")
    assert json.loads(told.read_bytes())["state"] == "finished"


# --- who is alive ---------------------------------------------------------------------------------------------------


def test_stop_ends_nobody_whose_number_was_left_in_a_file(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "supervisor.pid").write_text(f"{stranger.pid}\n")
        done = looplane("stop", LOOPLANE_STATE=str(tmp_path))
        assert (done.returncode, done.stdout) == (0, b"looplane: no console is running\n")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# --- being interrupted ----------------------------------------------------------------------------------------------


def test_a_simulation_that_is_interrupted_keeps_what_it_has(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "testbed.command", "run", str(SMALL), "--out", str(tmp_path), "--json"]
    words += ["--set", "workload.requests=400", "--set", "time_limit_s=80000"]
    process = subprocess.Popen(words, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)}, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    end = time.monotonic() + 60
    while not any(path.stat().st_size for path in tmp_path.glob("*/events/*.jsonl")):
        assert time.monotonic() < end
        time.sleep(0.02)
    (folder,) = tmp_path.iterdir()
    early = looplane("report", str(folder))
    assert early.returncode == 2
    assert b"still running" in early.stderr
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    told = json.loads(out)
    assert (process.returncode, told["outcome"]) == (4, "cancelled")
    assert (Path(told["folder"]) / "report" / "index.html").is_file()


def test_a_system_without_an_api_is_not_served(tmp_path: Path) -> None:
    spec = TOP / "fixtures" / "experiments" / "dualpath" / "vl-isolation.toml"
    done = looplane("serve", str(spec), "--on", "sim", "--out", str(tmp_path))
    assert done.returncode == 2
    words = 'systems.none.kind: "lanes": has no API for outside clients; allowed: blink, host-driven, placed'
    assert done.stderr.decode().splitlines() == [f"looplane: {spec}: {words}"]
    assert not list(tmp_path.iterdir())


def test_what_only_a_simulation_has_is_not_served_in_wall_time(tmp_path: Path) -> None:
    spec = TOP / "fixtures" / "experiments" / "blink" / "speculation.toml"
    done = looplane("serve", str(spec), "--on", "sim", "--out", str(tmp_path))
    assert done.returncode == 2
    words = "systems.drafts: speculation: a model that no emulation has; run it on sim"
    assert done.stderr.decode().splitlines() == [f"looplane: {words}"]
    assert not list(tmp_path.iterdir())
