"""`looplane schema`: the JSON schema of experiment files, for editors and forms."""

from __future__ import annotations

import argparse
import json

from testbed.command.exit_codes import ExitCode
from testbed.experiment.schema_export import experiment_schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def main(arguments: argparse.Namespace) -> int:  # noqa: ARG001  # every verb has this shape
    """Prints the schema."""
    print(json.dumps(experiment_schema(), indent=1))
    return ExitCode.PASSED
