"""`looplane stop`: ends the console or the bench that was started on this state folder (`up`, `worker`)."""

from __future__ import annotations

import argparse
import os
import signal
import time

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.locks import is_held
from testbed.command.places import state_folder

PATIENCE_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def main(arguments: argparse.Namespace) -> int:  # noqa: ARG001  # every verb has this shape
    """Signals the supervisor by its recorded pid and waits for it."""
    folder = state_folder() / "run"
    if not is_held(folder / "supervisor.lock"):  # a number that was left in a file may be anybody's by now
        print("looplane: no console is running")
        return ExitCode.PASSED
    try:
        pid = int((folder / "supervisor.pid").read_text())
        os.kill(pid, signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        print("looplane: no console is running")
        return ExitCode.PASSED
    except PermissionError:
        raise CommandError("the console is another user's; stop it as that user", ExitCode.HOST_CANNOT) from None
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            print("looplane: stopped")
            return ExitCode.PASSED
        time.sleep(0.1)
    raise CommandError(f"the supervisor (pid {pid}) did not end within {PATIENCE_S:.0f} s", ExitCode.ERRORED)
