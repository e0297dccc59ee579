"""`looplane up`: the web console on this host. Prints its address, the user and a one-time password.

Starts three processes and keeps them running: runnerd as root (the only privileged one), the web process and the
worker as the unprivileged service user. `looplane stop`, SIGTERM or Ctrl-C end them in order.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.installation import Installation, prepare_installation, stage_source
from testbed.command.places import state_folder
from testbed.command.supervise import Service, Supervisor

DEFAULT_PORT = 8400
HOST = "127.0.0.1"
READY_S = 60.0
WORKER_THREADS = 8
"""A worker's task only waits for processes; how many may run at once is decided elsewhere (webui.runs.selectors)."""


class Account(NamedTuple):
    """What is printed for the first log-in."""

    user: str
    password: str | None
    """None once somebody has chosen a password."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Port, password, detach."""
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}; 0 takes a free one")
    parser.add_argument("--new-password", action="store_true", help="give the first user a new one-time password")
    parser.add_argument("--detach", action="store_true", help="go on in the background once the console answers")


def main(arguments: argparse.Namespace) -> int:
    """Starts the console and stays until it is stopped."""
    if not 0 <= arguments.port <= 65535:
        raise CommandError(f"--port {arguments.port}: a port is 0 to 65535", ExitCode.BAD_INPUT)
    if arguments.detach:
        return _detached(arguments)
    return _serve(arguments, lambda: None)


def _serve(arguments: argparse.Namespace, ready: Callable[[], None]) -> int:
    place = prepare_installation(state_folder())
    with only_one(place), listening(arguments.port) as listener:
        stage_source(place)
        check_interpreter(place)
        account = prepare_database(place, new_password=arguments.new_password)
        supervisor = Supervisor(services(place, listener.fileno()), say)
        supervisor.stop_on_signals()
        supervisor.start()
        place.pidfile.write_text(f"{os.getpid()}\n")
        port = listener.getsockname()[1]
        try:
            if wait_until_ready(port, supervisor):
                announce(place, port, account)
                ready()
                supervisor.run()
            else:
                supervisor.end()
        finally:
            place.pidfile.unlink(missing_ok=True)
    return ExitCode.PASSED


def say(line: str) -> None:
    """A line for whoever watches the terminal, or the supervisor's log."""
    print(f"looplane: {line}", file=sys.stderr, flush=True)


@contextmanager
def only_one(place: Installation) -> Iterator[None]:
    """Holds the installation. Raises CommandError if another console has it."""
    with (place.sockets / "supervisor.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"a console is running on {place.state} already; ./looplane stop ends it", ExitCode.BAD_INPUT
            ) from None
        yield


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """The listening socket, which outlives every web process. Raises CommandError if the port is taken."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as fault:
            raise CommandError(
                f"port {port} of {HOST}: {fault.strerror}; --port takes another, 0 a free one", ExitCode.HOST_CANNOT
            ) from fault
        listener.listen(256)
        listener.set_inheritable(True)
        yield listener


def check_interpreter(place: Installation) -> None:
    """The service user must be able to run this Python: one in a home folder fails in odd ways. Raises CommandError."""
    place.run_as_user([sys.executable, "-c", "import django, channels, celery, uvicorn, testbed"], timeout_s=60)


def prepare_database(place: Installation, *, new_password: bool) -> Account:
    """Tables and the first user, made as the service user: a database that root makes is read-only for others."""
    place.run_as_user([sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "0"])
    words = [sys.executable, "manage.py", "user", "first", *(["--new-password"] if new_password else [])]
    told = json.loads(place.run_as_user(words))
    return Account(told["user"], told["password"])


def services(place: Installation, listener: int) -> list[Service]:
    """The processes, in order of starting."""
    python, environment = sys.executable, place.environment()
    uid, gid = (place.uid, place.gid) if place.privileged else (None, None)

    def service(name: str, words: list[str], **rest: object) -> Service:
        return Service(name, [python, *words], environment, place.app, place.logs / f"{name}.log", **rest)  # type: ignore[arg-type]

    worker = ["-m", "celery", "--app", "webui.celery", "--quiet", "worker", "--pool", "threads"]
    worker += ["--concurrency", str(WORKER_THREADS), "--loglevel", "WARNING"]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--hostname", "console@%h"]
    kept = [
        service("web", ["-m", "webui.serve", "--fd", str(listener)], user=uid, group=gid, descriptors=(listener,)),
        service("worker", worker, user=uid, group=gid, patience_s=20.0),
    ]
    if place.privileged:
        runnerd = ["-m", "topologies.runnerd", "--state", str(place.state), "--python", python, "--user", place.user]
        kept.insert(0, service("runnerd", runnerd, patience_s=30.0))
    return kept


def wait_until_ready(port: int, supervisor: Supervisor) -> bool:
    """True once the web process answers; False if told to stop before. Raises CommandError after a minute."""
    end = time.monotonic() + READY_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < end and not supervisor.stopping:
        supervisor.watch()
        try:
            with opener.open(f"http://{HOST}:{port}/healthz", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    if supervisor.stopping:
        return False
    logs = supervisor.services[0].log.parent
    supervisor.end()
    raise CommandError(f"the console did not answer within {READY_S:.0f} s; see {logs}/web.log", ExitCode.ERRORED)


def announce(place: Installation, port: int, account: Account) -> None:
    """What to open and how to get in, on standard output."""
    lines = [f"Console   http://{HOST}:{port}/", f"User      {account.user}"]
    if account.password is not None:
        lines.append(f"Password  {account.password}   (one-time: you choose your own when you log in)")
    else:
        lines.append("Password  the one you chose   (forgotten? ./looplane up --new-password)")
    if not place.privileged:
        lines.append("Note      without root only simulations can run; root adds Mininet")
    lines += [f"Runs      {place.state}/runs", f"Logs      {place.logs}", "Stop      ./looplane stop, or Ctrl-C here"]
    print("\n".join(lines), flush=True)


def _detached(arguments: argparse.Namespace) -> int:
    """The same in a process of its own; this one passes on what it prints until it is ready, then ends."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with os.fdopen(reader, "rb") as words:
            for line in words:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
        return ExitCode.PASSED if _is_alive(pid) else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(reader)
    os.setsid()
    _redirect(writer)
    os.close(writer)
    try:
        os._exit(_serve(arguments, lambda: _redirect_to(state_folder() / "log" / "supervisor.log")))
    except CommandError as error:
        say(str(error))
        os._exit(error.code)


def _redirect(descriptor: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in (1, 2):
        os.dup2(descriptor, stream)


def _redirect_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    _redirect(log)
    os.close(log)


def _is_alive(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) == (0, 0)
