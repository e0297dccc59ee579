"""`looplane test`: lint, types, import contracts, then the tests. The same on a laptop and in CI."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from testbed.command.exit_codes import ExitCode
from testbed.command.places import SOURCE

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lint", ("-m", "ruff", "check", ".")),
    ("types", ("-m", "mypy")),
    ("import contracts", ("-c", "from importlinter.cli import lint_imports_command as c; c()")),
)
"""What is checked before the tests, each by a library of the lock file."""


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
    words = ["-m", "pytest", *(["--soak"] if arguments.soak else []), *arguments.pytest]
    if not _step("tests", tuple(words)):
        failed.append("tests")
    print(f"looplane test: {'failed: ' + ', '.join(failed) if failed else 'all passed'}", flush=True)
    return ExitCode.EXPECTATION_FAILED if failed else ExitCode.PASSED


def _step(name: str, words: tuple[str, ...]) -> bool:
    print(f"--- {name}", flush=True)
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run([sys.executable, *words], cwd=SOURCE, env=environment, check=False).returncode
    print(f"--- {name}: {'ok' if code == 0 else f'exit {code}'}, {time.monotonic() - started:.0f} s", flush=True)
    return code == 0
