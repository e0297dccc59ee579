"""What `looplane up` and `looplane worker` share: one of them a state folder, in the foreground or behind it."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.installation import Installation
from testbed.command.places import state_folder
from testbed.command.supervise import Supervisor


def say(line: str) -> None:
    """A line for whoever watches the terminal, or the supervisor's log."""
    print(f"looplane: {line}", file=sys.stderr, flush=True)


@contextmanager
def only_one(place: Installation) -> Iterator[None]:
    """Holds the installation. Raises CommandError if another console or bench has it."""
    with (place.sockets / "supervisor.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"a console or bench is running on {place.state} already; ./looplane stop ends it", ExitCode.BAD_INPUT
            ) from None
        yield


@contextmanager
def supervised(place: Installation, supervisor: Supervisor) -> Iterator[None]:
    """Starts the services; `looplane stop` finds them by the pid file."""
    supervisor.stop_on_signals()
    supervisor.start()
    place.pidfile.write_text(f"{os.getpid()}\n")
    try:
        yield
    finally:
        place.pidfile.unlink(missing_ok=True)


def started(serve: Callable[[Callable[[], None]], int], *, detach: bool) -> int:
    """Serves until it is stopped; with `detach` in a process of its own, and returns once that is ready.

    `serve` calls what it is given when it is ready; what it prints until then is passed on.
    """
    if not detach:
        return serve(lambda: None)
    said, says = os.pipe()
    is_ready, tells_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(said)
        os.close(is_ready)
        os.setsid()
        _redirect(says)
        os.close(says)
        _serve_detached(serve, tells_ready)
    os.close(says)
    os.close(tells_ready)
    with os.fdopen(said, "rb") as words, os.fdopen(is_ready, "rb") as word:
        for line in words:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
        if word.read():
            return ExitCode.PASSED
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _serve_detached(serve: Callable[[Callable[[], None]], int], tells_ready: int) -> NoReturn:
    def ready() -> None:
        os.write(tells_ready, b"ready")
        os.close(tells_ready)
        _redirect_to(state_folder() / "log" / "supervisor.log")

    try:
        os._exit(serve(ready))
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
