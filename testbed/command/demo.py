"""`looplane demo`: the shipped demonstration, on Mininet as root, else under the simulated clock."""

from __future__ import annotations

import argparse

from testbed.command import run
from testbed.command.places import EXPERIMENTS, is_root
from testbed.command.telling import say

DEMO = EXPERIMENTS / "blink" / "demo.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """As `run`, without the file; the backend follows from who asks."""
    run.add_run_arguments(parser)
    parser.set_defaults(on="mininet" if is_root() else "sim")


def main(arguments: argparse.Namespace) -> int:
    """Runs the demonstration and says how to look at it."""
    spec, text = run.read(str(DEMO), arguments.overrides)
    say(f"{spec.title}: {spec.question}")
    if arguments.on == "mininet":
        say(f"real packets between emulated nodes, {spec.dilation:g} times slower than the modelled hardware")
    elif not is_root():
        say("without root: the same machines under the simulated clock. Root adds a Mininet network, containers, "
                "RoCEv2 packets that Wireshark opens, and a verdict on how faithful this host was.")  # fmt: skip
    code = run.run_spec(spec, text, arguments)
    say("open it in the console: ./looplane up   then log in and choose the run")
    return code
