"""`looplane clean`: removes what dead runs left on the host, by their label only. Run folders stay."""

from __future__ import annotations

import argparse
import subprocess
import sys

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import SOURCE, is_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help="only name what would be removed")


def main(arguments: argparse.Namespace) -> int:
    """Reaps; exit 0 when nothing of a dead run is left."""
    if not is_root():
        raise CommandError("clean needs root, since namespaces and containers are root's", ExitCode.HOST_CANNOT)
    command = [sys.executable, "-m", "topologies", "clean"] + (["--dry-run"] if arguments.dry_run else [])
    return subprocess.run(command, cwd=SOURCE, check=False).returncode
