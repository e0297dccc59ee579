"""`looplane calibrate`: measures this host's wire anew. The measuring is done by topologies, which knows the host."""

from __future__ import annotations

import argparse
import subprocess
import sys

from testbed.command.places import SOURCE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(arguments: argparse.Namespace) -> int:
    """Runs the self-test; exit 0 when its profile is kept, 3 when this host cannot be measured now."""
    command = [sys.executable, "-m", "topologies", "calibrate"] + (["--json"] if arguments.json else [])
    return subprocess.run(command, cwd=SOURCE, check=False).returncode
