"""`looplane up`: the web console on this host. Prints its address, the user and a one-time password.

Starts three processes and keeps them running: runnerd as root (the only privileged one), the web process and the
worker as the unprivileged service user. `looplane stop`, SIGTERM or Ctrl-C end them in order. DATABASE_URL and
REDIS_URL name servers in place of the embedded database and queue; they are asked before anything is started.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from testbed.command.bench_flags import BenchFlags, add_bench_arguments, read_bench_flags
from testbed.command.daemon import only_one, say, started, supervised
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.installation import Installation, prepare_installation, stage_source
from testbed.command.places import runs_folder, state_folder
from testbed.command.services import (
    check_interpreter,
    check_servers,
    make_tables,
    runnerd_service,
    web_service,
    worker_service,
)
from testbed.command.supervise import Supervisor

DEFAULT_PORT = 8400
HOST = "127.0.0.1"
READY_S = 60.0


class Account(NamedTuple):
    """What is printed for the first log-in."""

    user: str
    password: str | None
    """None once somebody has chosen a password."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Port, password, detach, and what this machine's bench is called."""
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}; 0 takes a free one")
    parser.add_argument("--new-password", action="store_true", help="give the first user a new one-time password")
    parser.add_argument("--detach", action="store_true", help="go on in the background once the console answers")
    add_bench_arguments(parser, required=False)


def main(arguments: argparse.Namespace) -> int:
    """Starts the console and stays until it is stopped."""
    if not 0 <= arguments.port <= 65535:
        raise CommandError(f"--port {arguments.port}: a port is 0 to 65535", ExitCode.BAD_INPUT)
    bench = read_bench_flags(arguments)
    return started(partial(_serve, arguments, bench), detach=arguments.detach)


def _serve(arguments: argparse.Namespace, bench: BenchFlags, ready: Callable[[], None]) -> int:
    place = prepare_installation(state_folder(), runs_folder() if os.environ.get("LOOPLANE_RUNS") else None)
    with only_one(place), listening(arguments.port) as listener:
        stage_source(place)
        check_interpreter(place)
        check_servers(place)
        account = prepare_database(place, new_password=arguments.new_password)
        web, worker = web_service(place, listener.fileno()), worker_service(place, bench)
        supervisor = Supervisor([*runnerd_service(place), web, worker], say)
        with supervised(place, supervisor):
            port = listener.getsockname()[1]
            if wait_until_ready(port, supervisor):
                announce(place, port, account)
                ready()
                supervisor.run()
            else:
                supervisor.end()
    return ExitCode.PASSED


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


def prepare_database(place: Installation, *, new_password: bool) -> Account:
    """Tables and the first user."""
    make_tables(place)
    words = [sys.executable, "manage.py", "user", "first", *(["--new-password"] if new_password else [])]
    told = json.loads(place.run_as_user(words))
    return Account(told["user"], told["password"])


def wait_until_ready(port: int, supervisor: Supervisor) -> bool:
    """True once the web process answers; False if told to stop before. Raises CommandError after a minute."""
    end = time.monotonic() + READY_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    # As the proxy in front would ask it: over plain HTTP it answers with a redirect where LOOPLANE_HTTPS is set.
    question = urllib.request.Request(f"http://{HOST}:{port}/healthz", headers={"X-Forwarded-Proto": "https"})
    while time.monotonic() < end and not supervisor.stopping:
        supervisor.watch()
        try:
            with opener.open(question, timeout=2):
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
    lines += [f"Runs      {place.runs}", f"Logs      {place.logs}", "Stop      ./looplane stop, or Ctrl-C here"]
    print("\n".join(lines), flush=True)
