"""How the bench of this machine is called and what it takes: flags of `looplane up` and `looplane worker`.

The processes get it through their environment; what a name or a tag may be is checked here, before anything starts.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from testbed.command.exit_codes import CommandError, ExitCode

_NAME = re.compile(r"\A[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?\Z")
_TAG = re.compile(r"\A[a-z0-9][a-z0-9_.-]{0,31}\Z")
MOST_TAGS = 20


class BenchFlags(NamedTuple):
    """What the worker says of its bench."""

    name: str
    """Empty: the worker calls it after the host."""
    tags: tuple[str, ...]
    simulates: bool
    """Whether it takes simulations from the common queue."""

    def environment(self) -> dict[str, str]:
        """For the worker's process."""
        told = {"LOOPLANE_BENCH": self.name, "LOOPLANE_BENCH_TAGS": ",".join(self.tags)}
        return {name: value for name, value in told.items() if value} | {
            "LOOPLANE_BENCH_SIM": "1" if self.simulates else "0"
        }


def add_bench_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """`--bench`, `--tags` and `--sim`."""
    default = "" if required else ", default the host's"
    parser.add_argument("--bench", required=required, metavar="NAME", help=f"name of this machine's bench{default}")
    parser.add_argument("--tags", metavar="A,B", help="words that runs may ask for, such as lab-2,connectx")
    parser.add_argument(
        "--sim", action=argparse.BooleanOptionalAction, default=True, help="take simulations too (default)"
    )


def read_bench_flags(arguments: argparse.Namespace, caller: Mapping[str, str] = os.environ) -> BenchFlags:
    """The flags; the environment's LOOPLANE_BENCH and LOOPLANE_BENCH_TAGS where they are not given."""
    name = caller.get("LOOPLANE_BENCH", "") if arguments.bench is None else arguments.bench
    if (name or arguments.bench is not None) and not _NAME.match(name):
        words = f"--bench {name!r}: 1 to 40 of a-z, 0-9 and -, not - at either end"
        raise CommandError(words, ExitCode.BAD_INPUT)
    text = caller.get("LOOPLANE_BENCH_TAGS", "") if arguments.tags is None else arguments.tags
    tags = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for tag in tags:
        if not _TAG.match(tag):
            words = f"--tags {tag!r}: each is 1 to 32 of a-z, 0-9, _ . and -, and starts with a letter or digit"
            raise CommandError(words, ExitCode.BAD_INPUT)
    if len(tags) > MOST_TAGS:
        raise CommandError(f"--tags: at most {MOST_TAGS}, these are {len(tags)}", ExitCode.BAD_INPUT)
    return BenchFlags(name, tags, arguments.sim)
