"""`looplane pids RUN NODE`: every process of a node's software in a live run, for looking into it or stopping it."""

from __future__ import annotations

import argparse
import subprocess
import sys

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.finished_run import find_run
from testbed.command.places import SOURCE, is_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Run and node."""
    parser.add_argument("run", metavar="RUN", help="a run folder, a run id, or last")
    parser.add_argument("node", metavar="NODE", help="as in its plan: host0, gpu0, ...")


def main(arguments: argparse.Namespace) -> int:
    """Prints a JSON list of pids."""
    if not is_root():
        raise CommandError("pids needs root, since the processes are root's", ExitCode.HOST_CANNOT)
    folder = find_run(arguments.run).path
    words = [sys.executable, "-m", "topologies", "pids", str(folder), "--node", arguments.node]
    return subprocess.run(words, cwd=SOURCE, check=False).returncode
