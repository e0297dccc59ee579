"""The supervisor, with processes of its own: restarts, order, users, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.command.places import SOURCE
from testbed.command.supervise import Service, Supervisor

SLEEP = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Service]:
    def service(name: str, code: str, **fields: object) -> Service:
        words = [sys.executable, "-c", code]
        values = {
            "environment": {"PATH": os.environ["PATH"]},
            "folder": tmp_path,
            "log": tmp_path / f"{name}.log",
        } | fields
        return Service(name, words, **values)  # type: ignore[arg-type]

    return service


def until(condition: Callable[[], bool], supervisor: Supervisor | None = None, patience_s: float = 15.0) -> None:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if supervisor is not None:
            supervisor.watch()
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to be")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_what_dies_comes_back_with_longer_and_longer_waits(make: Callable[..., Service]) -> None:
    lines: list[str] = []
    supervisor = Supervisor([make("ill", "raise SystemExit(3)")], lines.append, first_wait_s=0.05)
    supervisor.start()
    try:
        until(lambda: len(lines) >= 4, supervisor)
    finally:
        supervisor.end()
    waits = [float(line.split(" in ")[1].split(" s;")[0]) for line in lines[:4]]
    assert waits == [0.05, 0.1, 0.2, 0.4]
    assert all("exit 3" in line and "ill.log" in line for line in lines)


def test_a_killed_process_is_another_one_soon(make: Callable[..., Service]) -> None:
    lines: list[str] = []
    supervisor = Supervisor([make("one", SLEEP), make("two", SLEEP)], lines.append)
    supervisor.start()
    try:
        before = supervisor.pids()
        os.kill(before["one"], signal.SIGKILL)
        until(lambda: supervisor.pids().get("one") not in (None, before["one"]), supervisor)
        assert supervisor.pids()["two"] == before["two"]
        assert "SIGKILL" in lines[0]
    finally:
        pids = list(supervisor.pids().values())
        supervisor.end()
    assert all(is_gone(pid) for pid in pids)


def test_they_end_in_the_opposite_order(make: Callable[..., Service], tmp_path: Path) -> None:
    note = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n    open({path!r}, 'a').write({name!r} + ' ')\n    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\nprint('up', flush=True)\ntime.sleep(60)\n"
    )
    order = tmp_path / "order"
    services = [make(name, note.format(path=str(order), name=name)) for name in ("first", "second", "third")]
    supervisor = Supervisor(services, print)
    supervisor.start()
    until(lambda: all("up" in service.log.read_text() for service in services))
    supervisor.end()
    assert order.read_text().split() == ["third", "second", "first"]


def test_one_that_will_not_end_is_killed_and_named(make: Callable[..., Service]) -> None:
    lines: list[str] = []
    service = make("stubborn", STUBBORN, patience_s=0.3)
    supervisor = Supervisor([service], lines.append)
    supervisor.start()
    until(lambda: "up" in service.log.read_text())
    (pid,) = supervisor.pids().values()
    supervisor.end()
    assert is_gone(pid)
    assert "stubborn did not end" in lines[0]


def test_a_signal_ends_run(make: Callable[..., Service]) -> None:
    supervisor = Supervisor([make("one", SLEEP)], print)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        supervisor.stop_on_signals()
        supervisor.start()
        (pid,) = supervisor.pids().values()
        os.kill(os.getpid(), signal.SIGTERM)
        supervisor.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert is_gone(pid)


def test_children_of_a_killed_supervisor_end(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys, time\n"
        "from testbed.command.supervise import Service, Supervisor\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        f"service = Service('child', [sys.executable, '-c', {SLEEP!r}], dict(os.environ), folder, folder / 'log')\n"
        "supervisor = Supervisor([service], print)\nsupervisor.start()\n"
        "print(supervisor.pids()['child'], flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=SOURCE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    with parent.stdout:
        child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until(lambda: is_gone(child))


@pytest.mark.root
def test_a_service_runs_as_its_user_without_groups(make: Callable[..., Service]) -> None:
    code = "import os; print(os.getuid(), os.getgid(), os.getgroups(), oct(os.umask(0)), flush=True)\n" + SLEEP
    service = make("nobody", code, user=65534, group=65534)
    supervisor = Supervisor([service], print)
    supervisor.start()
    try:
        until(lambda: "\n" in service.log.read_text())
        assert service.log.read_text().split() == ["65534", "65534", "[]", "0o22"]
    finally:
        supervisor.end()
