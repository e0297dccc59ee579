"""The command line of a node's process: `--run RUNFOLDER --node NAME [--process NAME]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class NodeArguments(NamedTuple):
    """What the bench, or the node's first process, has asked for."""

    run: Path
    """Folder of the run."""
    node: str
    """Name in plan.json."""
    process: str
    """Which of the node's processes, by its first machine; empty for the first or only one."""


def parse_arguments(arguments: Sequence[str] | None = None) -> NodeArguments:
    """Reads the command line. Exits 2 where it is another."""
    parser = argparse.ArgumentParser(description="One emulated node's software; started by the bench.")
    parser.add_argument("--run", type=Path, required=True, metavar="RUNFOLDER", help="folder of the run")
    parser.add_argument("--node", required=True, metavar="NAME", help="name of this node in plan.json")
    parser.add_argument("--process", default="", metavar="NAME", help="one of its processes, if not the first")
    options = parser.parse_args(arguments)
    return NodeArguments(options.run, options.node, options.process)
