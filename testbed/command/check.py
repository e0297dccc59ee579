"""`looplane test`: lint, types, import contracts, then the tests. The same on a laptop and in CI."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from testbed.command.exit_codes import ExitCode
from testbed.command.places import SOURCE

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lint", ("-m", "ruff", "check", ".")),
    ("types", ("-m", "mypy")),
    ("import contracts", ("-c", "from importlinter.cli import lint_imports_command as c; c()")),
)
"""What is checked before the tests, each by a library of the lock file."""

SIDE_BY_SIDE = (
    "tests/webui", "tests/testbed", "tests/emulators", "tests/conformance", "tests/oracles", "tests/architecture",
    "tests/scenarios/test_shipped_experiments.py",
)  # fmt: skip
"""Tests that keep to their own process, or to servers, folders and namespaces that are theirs alone: they run on all
cores at once. The others make networks, consoles and load on this machine, or look at all of it, and have it to
themselves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--soak`, and pytest's own arguments."""
    parser.add_argument("--soak", action="store_true", help="run the long repetitions in full")
    parser.add_argument("--only-tests", action="store_true", help="skip lint, types and import contracts")
    parser.add_argument("pytest", nargs="*", help="paths or further arguments for pytest (after --)")


def main(arguments: argparse.Namespace) -> int:
    """Runs every step even if one fails, so that one look shows all; exit 0 only if all passed."""
    failed: list[str] = []
    if not arguments.only_tests:
        failed += [name for name, words in STEPS if not _step(name, words)]
    for name, words in test_steps(arguments.pytest, soak=arguments.soak):
        if not _step(name, words):
            failed.append(name)
    print(f"looplane test: {'failed: ' + ', '.join(failed) if failed else 'all passed'}", flush=True)
    return ExitCode.EXPECTATION_FAILED if failed else ExitCode.PASSED


def test_steps(told: Sequence[str], *, soak: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Names and words of the pytest runs: one with what the user told, else what can be parallel, then the rest.

    The long repetitions note what they measured, which only one process can print; with `soak` nothing is parallel.
    """
    pytest = ("-m", "pytest", *(["--soak"] if soak else []))
    if told or soak:
        return [("tests", (*pytest, *told))]
    cores = str(os.cpu_count() or 1)
    apart = [word for path in SIDE_BY_SIDE for word in ("--ignore", path)]
    return [
        ("tests side by side", (*pytest, "-n", cores, "--dist", "worksteal", *SIDE_BY_SIDE)),
        ("tests", (*pytest, *apart)),
    ]


def _step(name: str, words: tuple[str, ...]) -> bool:
    print(f"--- {name}", flush=True)
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run([sys.executable, *words], cwd=SOURCE, env=environment, check=False).returncode
    print(f"--- {name}: {'ok' if code == 0 else f'exit {code}'}, {time.monotonic() - started:.0f} s", flush=True)
    return code == 0
