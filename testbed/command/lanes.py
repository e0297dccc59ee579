"""`looplane lanes RUN`: the virtual-lane tables of a live run, shown, or changed while its packets pass."""

from __future__ import annotations

import argparse
import subprocess
import sys

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.finished_run import find_run
from testbed.command.places import SOURCE, is_root

FIELDS = ("max-vls", "high-limit", "vlarb-high", "vlarb-low", "sl2vl", "frame-bytes", "backlogged")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Run, ports and the fields of a lane table."""
    parser.add_argument("run", metavar="RUN", help="a run folder, a run id, or last")
    parser.add_argument("--port", action="append", default=[], metavar="NODE.INTERFACE", help="default: all with lanes")
    for field in FIELDS:
        parser.add_argument(f"--{field}", metavar="VALUE", help=f"as {field.replace('-', '_')} in an experiment file")


def main(arguments: argparse.Namespace) -> int:
    """Prints each port's table, and its classes where it was changed."""
    if not is_root():
        raise CommandError("lanes needs root, since the run's queues are root's", ExitCode.HOST_CANNOT)
    words = [sys.executable, "-m", "topologies.lane_desk", str(find_run(arguments.run).path)]
    for port in arguments.port:
        words += ["--port", port]
    for field in FIELDS:
        value = getattr(arguments, field.replace("-", "_"))
        if value is not None:
            words.append(f"--{field}={value}")
    return subprocess.run(words, cwd=SOURCE, check=False).returncode
