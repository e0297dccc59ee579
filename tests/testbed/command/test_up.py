"""`looplane up` and `stop` as a user meets them: the whole console on a state folder of the test's own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.command.exit_codes import ExitCode
from testbed.command.places import SOURCE


@pytest.fixture
def state() -> Iterator[Path]:
    """In /var/tmp, because the service user must get there and pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp(prefix="looplane-up-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    run("stop", state=folder)
    shutil.rmtree(folder, ignore_errors=True)


def run(*words: str, state: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LOOPLANE_STATE": str(state)}
    command = [sys.executable, "-m", "testbed.command", *words]
    return subprocess.run(
        command, cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def get(address: str) -> int:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=10) as answer:
        return int(answer.status)


def pids(state: Path) -> dict[str, tuple[int, int]]:
    """The console's processes: (pid, uid) by what they are."""
    supervisor = int((state / "run" / "supervisor.pid").read_text())
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            words = (folder / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if f"\nPPid:\t{supervisor}\n" in status:
            kind = next((name for name in ("runnerd", "webui.serve", "webui.celery") if name in words), None)
            if kind is not None:  # a process that has just died has no words left
                found[kind] = (int(folder.name), int(status.split("\nUid:\t")[1].split()[0]))
    return found


@pytest.mark.root
def test_up_prints_how_to_get_in_keeps_three_processes_and_stops(state: Path) -> None:
    done = run("up", "--port", "0", "--detach", state=state)
    assert done.returncode == 0, done.stderr
    found = re.search(r"Console {3}(http://127\.0\.0\.1:\d+/)\nUser {6}(\S+)\nPassword {2}(\S+)", done.stdout)
    assert found, done.stdout
    address, user, password = found.groups()
    assert user == "admin"
    assert re.fullmatch(r"(?:[a-z2-9]{4}-){3}[a-z2-9]{4}", password)
    assert get(address) == 200
    processes = pids(state)
    assert set(processes) == {"runnerd", "webui.serve", "webui.celery"}
    assert processes["runnerd"][1] == 0
    assert processes["webui.serve"][1] == processes["webui.celery"][1] != 0

    second = run("up", "--port", "0", state=state)
    assert second.returncode == ExitCode.BAD_INPUT
    assert "running on" in second.stderr

    os.kill(processes["webui.serve"][0], signal.SIGKILL)
    end = time.monotonic() + 20
    while pids(state).get("webui.serve", processes["webui.serve"]) == processes["webui.serve"]:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert get(address) == 200  # the listening socket outlived the process, so nobody was refused

    stopped = run("stop", state=state)
    assert stopped.returncode == 0
    assert all(not Path(f"/proc/{pid}").exists() for pid, _ in processes.values())
    assert not (state / "run" / "supervisor.pid").exists()
    assert "no console is running" in run("stop", state=state).stdout

    again = run("up", "--port", "0", "--detach", state=state)
    assert password not in again.stdout  # nobody has chosen one, so it is a new one-time password
    assert "one-time" in again.stdout


@pytest.mark.root
def test_the_other_side_of_the_wall(state: Path) -> None:
    """What the console's user may and may not do on the host (design/console.md §7)."""
    assert run("up", "--port", "0", "--detach", state=state).returncode == 0
    uid = pids(state)["webui.serve"][1]
    gid = (state / "db").stat().st_gid
    assert (state / "run" / "runnerd.sock").stat().st_gid == gid

    def as_user(code: str) -> bool:
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, user=uid, group=gid, extra_groups=[], capture_output=True, check=False)
        return done.returncode == 0

    assert as_user(f"open({str(state / 'app' / 'manage.py')!r}).read()")
    assert not as_user(f"open({str(state / 'app' / 'manage.py')!r}, 'a')")
    assert not as_user(f"open({str(state / 'run' / 'supervisor.pid')!r}, 'a')")
    unshare = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x40000000) != 0)"  # CLONE_NEWNET
    assert not as_user(unshare)
    assert as_user(f"import os; os.mkdir({str(state / 'runs' / 'mine')!r})")
    secret = (state / "db" / "secret_key").stat()
    assert (secret.st_uid, secret.st_mode & 0o077) == (uid, 0)


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none(state: Path, port: str) -> None:
    done = run("up", "--port", port, state=state)
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.startswith("looplane: --port")


def test_a_port_that_is_taken_is_one_line(state: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("up", "--port", str(taken.getsockname()[1]), state=state)
    assert done.returncode == ExitCode.HOST_CANNOT
    assert "--port takes another" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_detached_it_tells_the_code_of_a_start_that_failed(state: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("up", "--detach", "--port", str(taken.getsockname()[1]), state=state)
    assert done.returncode == ExitCode.HOST_CANNOT
    assert "--port takes another" in done.stdout + done.stderr
