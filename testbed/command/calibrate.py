"""`looplane calibrate`: measures this host's wire anew, or what neighbours do to a host loop here.

The measuring is done by topologies, which knows the host.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from testbed.command.places import SOURCE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`, `--contention`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--contention", action="store_true",
        help="instead: pbzip2, a compile and a memory churn beside a host loop, about 100 s; prints the rows of "
        "fixtures/profiles/host-contention.toml and keeps nothing",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Runs the self-test; exit 0 when its profile is kept, 3 when this host cannot be measured now."""
    if arguments.contention:
        return subprocess.run([sys.executable, "-m", "topologies.contention_bench"], cwd=SOURCE, check=False).returncode
    command = [sys.executable, "-m", "topologies", "calibrate"] + (["--json"] if arguments.json else [])
    return subprocess.run(command, cwd=SOURCE, check=False).returncode
