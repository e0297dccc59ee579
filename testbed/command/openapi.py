"""`looplane openapi`: the description of the console's REST API, for generators of clients and for reading offline."""

from __future__ import annotations

import argparse
import subprocess
import sys

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import SOURCE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def main(arguments: argparse.Namespace) -> int:  # noqa: ARG001  # every verb has this shape
    """Prints OpenAPI 3.1 as JSON. The web side makes it, in a process of its own: the command imports none of it."""
    made = subprocess.run([sys.executable, "-m", "webui.api.document"], cwd=SOURCE, capture_output=True, check=False)
    if made.returncode:
        last = made.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise CommandError(f"the description could not be made: {' '.join(last)}", ExitCode.ERRORED)
    sys.stdout.buffer.write(made.stdout)
    return ExitCode.PASSED
