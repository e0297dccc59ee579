"""runnerd over its real socket, with real users: who may ask, what is refused, how runs end (console §7, faults E)."""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import host_state
import pytest
from bench_tree import BenchTree, wait_for

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]
ASKER, STRANGER = "nobody", "daemon"
ENDLESS = "question = 'client0 is endless'"


class Daemon:
    """A runnerd on a bench tree and a state folder of its own."""

    def __init__(self, tree: BenchTree, state: Path) -> None:
        self.tree = tree
        self.state = state
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["-m", "topologies.runnerd", "--state", self.state, "--python", sys.executable, "--user", ASKER]
        log = (self.state / "runnerd.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                ["/usr/bin/python3", *map(str, words)], cwd=self.tree.source, stderr=log, start_new_session=True
            )
        end = time.monotonic() + 60
        while not self.answers():
            assert self.process.poll() is None, (self.state / "runnerd.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.02)

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    @property
    def socket(self) -> Path:
        return self.state / "run" / "runnerd.sock"

    def ask(self, **question: Any) -> dict[str, Any]:
        return self.ask_raw(json.dumps(question).encode() + b"\n")

    def ask_raw(self, line: bytes) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.socket))
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            data = b""
            while not data.endswith(b"\n"):
                more = connection.recv(65536)
                assert more, data
                data += more
        answer: dict[str, Any] = json.loads(data)
        return answer

    def ask_as(self, user: str, **question: Any) -> str:
        """What `user` gets: the answer's text, or the name of the error with which the kernel refuses."""
        uid, gid = pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid
        program = (
            "import socket,sys\ns=socket.socket(socket.AF_UNIX)\n"
            "try: s.connect(sys.argv[1])\nexcept OSError as e: print(type(e).__name__); sys.exit()\n"
            "s.sendall(sys.argv[2].encode()+b'\\n'); print(s.makefile().readline())"
        )
        done = subprocess.run(
            ["/usr/bin/python3", "-c", program, str(self.socket), json.dumps(question)],
            user=uid, group=gid, extra_groups=[], capture_output=True, text=True, check=True, cwd="/",
        )  # fmt: skip
        return done.stdout.strip()

    def running(self, run: str) -> bool:
        return run in self.ask(op="status")["running"]

    def wait_until_over(self, run: str) -> dict[str, Any]:
        end = time.monotonic() + 90
        while self.running(run):
            assert time.monotonic() < end
            time.sleep(0.05)
        record: dict[str, Any] = self.ask(op="status", run=run)["record"]
        return record

    def outcome(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "runs" / run / "control" / "outcome.json").read_text())
        return found

    def runner(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "runs" / run / "control" / "runner.json").read_text())
        return found


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    state = Path(tempfile.mkdtemp(prefix="looplane-test-", dir="/var/tmp"))
    state.chmod(0o755)
    made = Daemon(BenchTree(tmp_path), state)
    try:
        made.start()
        yield made
    finally:
        if made.process is not None:
            made.stop()
        shutil.rmtree(state)


@pytest.fixture
def run(label: str) -> str:
    return f"20260101-000000-{label}"


def spec(daemon: Daemon, extra: str = "") -> str:
    """A real experiment; `extra` is added at its top."""
    text = (daemon.tree.source / "fixtures/experiments/blink/small.toml").read_text()
    text = re.sub(r"(?m)^question = .*$", "", text)
    return f'nodes = "namespace"\n{extra or "question = 1"}\n{text}'.replace("question = 1", 'question = "What?"')


def start_endless(daemon: Daemon, run: str) -> Path:
    assert daemon.ask(op="start", run=run, spec=spec(daemon, ENDLESS), overrides=["seed=5"])["ok"]
    folder = daemon.state / "runs" / run
    wait_for(folder / "control" / "start.json")
    return folder


def test_socket_and_folders_belong_to_root_and_the_consoles_group(daemon: Daemon) -> None:
    group = pwd.getpwnam(ASKER).pw_gid
    for path, mode in ((daemon.socket, 0o660), (daemon.socket.parent, 0o750), (daemon.state / "runs", 0o1775)):
        facts = path.stat()
        assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o7777) == (0, group, mode)


def test_only_root_and_the_consoles_user_may_ask(daemon: Daemon) -> None:
    assert json.loads(daemon.ask_as(ASKER, op="status"))["running"] == []
    assert daemon.ask_as(STRANGER, op="status") == "PermissionError"
    daemon.socket.parent.chmod(0o777)  # and if the file's mode were wrong, the daemon still looks who it is
    daemon.socket.chmod(0o777)
    assert json.loads(daemon.ask_as(STRANGER, op="status"))["error"] == "forbidden"


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({}, "bad op"),
        ({"op": "exec"}, "bad op"),
        ({"op": ["start"]}, "bad op"),
        ({"op": "start"}, "bad run id"),
        ({"op": "start", "run": "../../etc", "spec": ""}, "bad run id"),
        ({"op": "start", "run": "20260101-000000-abcdef\n", "spec": ""}, "bad run id"),
        ({"op": "start", "run": "20260101-000000-ABCDEF", "spec": ""}, "bad run id"),
        ({"op": "start", "run": "٢٠٢٦٠١٠١-000000-abcdef", "spec": ""}, "bad run id"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": {"a": 1}}, "bad spec"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": "a\0b"}, "bad spec"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": "#" * 300_000}, "bad spec"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": "", "path": "/etc"}, "bad question"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": "", "overrides": "a=b"}, "bad overrides"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": "", "overrides": ["a"]}, "bad overrides"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": "", "overrides": ["a=\n"]}, "bad overrides"),
        ({"op": "start", "run": "20260101-000000-abcdef", "spec": "", "overrides": ["a=b"] * 65}, "bad overrides"),
        ({"op": "cancel", "run": "20260101-000000-abcdef"}, "not running"),
        ({"op": "status", "verbose": True}, "bad question"),
    ],
)
def test_what_is_refused(daemon: Daemon, question: dict[str, Any], error: str) -> None:
    assert daemon.ask(**question)["error"] == error
    assert list((daemon.state / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\n", "bad question"),
        (b"[1]\n", "bad question"),
        (b"{\xff\n", "bad question"),
        (b"x" * 3_000_000, "too long"),
        (b'{"op": "status"}', None),
    ],
)
def test_odd_lines(daemon: Daemon, line: bytes, error: str | None) -> None:
    try:
        assert daemon.ask_raw(line).get("error") == error
    except (BrokenPipeError, ConnectionResetError):
        assert error == "too long"  # it need not read all of it
    assert daemon.ask(op="status")["ok"]


def test_a_run_runs_and_its_id_is_used_up(daemon: Daemon, run: str) -> None:
    assert daemon.ask(op="start", run=run, spec=spec(daemon))["ok"]
    assert daemon.ask(op="start", run=run, spec=spec(daemon))["error"] == "exists"  # a message delivered twice
    record = daemon.wait_until_over(run)
    assert record["state"] == "finished"
    assert record["cleaned"] is True
    assert daemon.runner(run) == {"state": "finished", "rc": record["rc"], "cancelled": False, "cleaned": True}
    assert daemon.outcome(run)["state"] == "finished"
    bench = json.loads((daemon.state / "runs" / run / "control" / "bench.json").read_text())
    assert bench == {"outcome": "completed", "detail": "", "teardown": ""}
    assert daemon.ask(op="start", run=run, spec=spec(daemon))["error"] == "exists"
    log = (daemon.state / "run" / "runnerd" / f"{run}.log").stat()
    assert log.st_mode & 0o004  # readable for the console through its group's folder


def test_a_bad_spec_ends_as_errored_with_its_line(daemon: Daemon, run: str) -> None:
    assert daemon.ask(op="start", run=run, spec="nonsense = 1\n")["ok"]
    record = daemon.wait_until_over(run)
    assert record["rc"] == 2
    assert daemon.outcome(run)["outcome"] == "errored"
    assert "nonsense" in daemon.outcome(run)["detail"]


def test_overrides_reach_the_run_and_cannot_be_options(daemon: Daemon, run: str) -> None:
    overrides = ["workload.requests=3", "--json=1"]
    assert daemon.ask(op="start", run=run, spec=spec(daemon), overrides=overrides)["ok"]
    daemon.wait_until_over(run)
    assert "--json" in daemon.outcome(run)["detail"]  # it was taken for a path of the spec, and refused as one


def test_one_run_at_a_time_and_cancel(daemon: Daemon, run: str) -> None:
    folder = start_endless(daemon, run)
    assert json.loads((folder / "plan.json").read_text())["run"] == run
    other = f"20260101-000001-{secrets.token_hex(3)}"
    assert daemon.ask(op="start", run=other, spec=spec(daemon))["error"] == "busy"
    assert daemon.ask(op="cancel", run=other)["error"] == "not running"
    answers: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: answers.append(daemon.ask(op="cancel", run=run))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer.get("ok") or answer.get("error") == "not running" for answer in answers)
    record = daemon.wait_until_over(run)
    assert record["cancelled"] is True
    assert record["cleaned"] is True
    assert daemon.outcome(run)["outcome"] == "cancelled"
    assert daemon.ask(op="cancel", run=run)["error"] == "not running"


def test_nothing_is_begun_beside_another_consoles_emulation(daemon: Daemon, run: str) -> None:
    state = Path(tempfile.mkdtemp(prefix="looplane-test-", dir="/var/tmp"))
    state.chmod(0o755)
    neighbour = Daemon(daemon.tree, state)
    try:
        neighbour.start()
        start_endless(neighbour, run)
        assert (neighbour.ask(op="status")["elsewhere"], daemon.ask(op="status")["elsewhere"]) == (False, True)
        ours = f"20260101-000003-{secrets.token_hex(3)}"
        assert daemon.ask(op="start", run=ours, spec=spec(daemon))["error"] == "taken"
        neighbour.ask(op="cancel", run=run)
        neighbour.wait_until_over(run)
        assert daemon.ask(op="status")["elsewhere"] is False
        assert daemon.ask(op="start", run=ours, spec="nonsense = 1\n")["ok"]  # it was not used up
        daemon.wait_until_over(ours)
    finally:
        neighbour.stop()
        shutil.rmtree(state)


def test_two_starts_at_once_are_one(daemon: Daemon, run: str) -> None:
    answers: list[dict[str, Any]] = []
    text = spec(daemon)
    ask = lambda: answers.append(daemon.ask(op="start", run=run, spec=text))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str(answer.get("error")) for answer in answers) == ["None", *["exists"] * 4]
    daemon.wait_until_over(run)


def test_kill_9_of_the_run_is_cleaned_up_and_told(daemon: Daemon, run: str) -> None:
    start_endless(daemon, run)
    pid = daemon.ask(op="status", run=run)["record"]["pid"]
    os.kill(pid, signal.SIGKILL)
    record = daemon.wait_until_over(run)
    assert record["rc"] == -signal.SIGKILL
    assert daemon.outcome(run)["outcome"] == "errored"
    assert daemon.runner(run)["cleaned"] is True


def test_kill_9_of_the_daemon_ends_its_run_and_the_next_one_says_lost(daemon: Daemon, run: str) -> None:
    start_endless(daemon, run)
    daemon.stop(signal.SIGKILL)
    daemon.start()
    assert daemon.ask(op="status")["running"] == []
    assert daemon.outcome(run) == {
        "state": "finished", "outcome": "lost", "detail": "the runner ended while this run was under way",
    }  # fmt: skip
    assert daemon.runner(run) == {"state": "lost", "rc": None, "cancelled": False, "cleaned": True}
    assert daemon.ask(op="start", run=run, spec=spec(daemon))["error"] == "exists"


def test_stopping_the_daemon_cancels_and_reaps(daemon: Daemon, run: str) -> None:
    start_endless(daemon, run)
    assert daemon.stop() == 0
    assert daemon.outcome(run)["outcome"] == "cancelled"
    assert daemon.runner(run)["cancelled"] is True
    daemon.start()


def test_a_folder_that_is_not_roots_is_never_written_to(daemon: Daemon, run: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (daemon.state / "runs" / run).symlink_to(victim)
    assert daemon.ask(op="start", run=run, spec="nonsense = 1\n")["error"] == "exists"
    other = f"20260101-000002-{secrets.token_hex(3)}"
    assert daemon.ask(op="start", run=other, spec="nonsense = 1\n")["ok"]
    (daemon.state / "runs" / other).symlink_to(victim)  # before the child has come to make it
    daemon.wait_until_over(other)
    assert list(victim.iterdir()) == []


def test_doctor_and_clean_by_way_of_the_daemon(daemon: Daemon) -> None:
    answer = daemon.ask(op="doctor")
    assert answer["can_emulate"] is True
    assert {"root", "qdisc htb", "docker"} <= {finding["name"] for finding in answer["findings"]}
    assert daemon.ask(op="clean")["ok"] is True


def counts(pid: int, labels: list[str]) -> dict[str, int]:
    """What a process has, and what is left on the host of the runs that it has started."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    left = {line for label in labels for line in host_state.of_label(label)}
    keepers = [*children, *(line.split()[1] for line in left if line.startswith("process"))]
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "children": len(children),
        "namespaces": len({os.readlink(f"/proc/{keeper}/ns/net") for keeper in keepers}),
        "left of runs": len(left),
        "memory KiB": int(status["VmRSS"].split()[0]),
    }


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_starting_and_stopping_leaves_the_daemon_as_it_was(
    daemon: Daemon, soak: bool, soak_note: Callable[[str], None]
) -> None:
    """Every other run is cancelled half-way, the rest end by themselves."""
    assert daemon.process is not None
    cycles, labels = (50 if soak else 3), []
    rows: list[dict[str, int]] = []
    for number in range(cycles):
        labels.append(secrets.token_hex(3))
        run = f"20260101-000000-{labels[-1]}"
        if number % 2:
            start_endless(daemon, run)
            assert daemon.ask(op="cancel", run=run)["ok"]
        else:
            assert daemon.ask(op="start", run=run, spec=spec(daemon), overrides=[])["ok"]
        daemon.wait_until_over(run)
        assert daemon.outcome(run)["state"] == "finished"
        assert daemon.runner(run)["cleaned"] is True
        rows.append(counts(daemon.process.pid, labels))
    first, *_, last = rows
    # One descriptor may still be that of the asker before, whom the daemon has not yet heard leave.
    most = {**first, "descriptors": min(row["descriptors"] for row in rows) + 1}
    for name in (name for name in first if name != "memory KiB"):
        assert max(row[name] for row in rows) <= most[name], (name, rows)
    assert (first["children"], first["namespaces"], first["left of runs"]) == (0, 0, 0)
    assert last["memory KiB"] < rows[1]["memory KiB"] + 1024
    table = "; ".join(f"{name} {first[name]} -> {last[name]}" for name in first)
    soak_note(f"{cycles} start/stop cycles of runnerd: {table}")
