"""`looplane doctor`: what this host can emulate. The probing is done by topologies, which knows the host."""

from __future__ import annotations

import argparse
import subprocess
import sys

from testbed.command.calibrated import age_hours, kept
from testbed.command.places import SOURCE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(arguments: argparse.Namespace) -> int:
    """Runs the probes; exit 0 when Mininet runs are possible, 3 when only simulation is."""
    command = [sys.executable, "-m", "topologies", "doctor"] + (["--json"] if arguments.json else [])
    code = subprocess.run(command, cwd=SOURCE, check=False).returncode
    if not arguments.json:
        profile = kept()
        words = "wire profile: none of this host is kept"
        if profile is not None:
            words = f"{profile.words()}, {age_hours(profile):.1f} h old"
        print(f"{words}; renew it with ./looplane calibrate")
    return code
