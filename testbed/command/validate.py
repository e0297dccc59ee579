"""`looplane validate FILE…`: reads experiments as `run` would, - from standard input, and names every fault."""

from __future__ import annotations

import argparse
import sys

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.run import read
from testbed.experiment.sweep import count_places


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Files and overrides."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="experiment files (TOML), or -")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="K=V", help="override, as workload.requests=8"
    )


def main(arguments: argparse.Namespace) -> int:
    """Exit 0 when every file is right, else 2."""
    bad = False
    for file in arguments.files:
        try:
            spec, _ = read(file, arguments.overrides)
        except CommandError as fault:
            print(fault, file=sys.stderr)
            bad = True
            continue
        trials = count_places(len(spec.systems), spec.sweep, spec.repeats)
        print(f"{file}: {spec.name}: ok, {trials} trial{'s' if trials > 1 else ''} of {', '.join(spec.systems)}")
    return ExitCode.BAD_INPUT if bad else ExitCode.PASSED
