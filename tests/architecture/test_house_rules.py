"""Guards over the project itself: names, contracts, mocks, hosts. Each failure says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
FORBIDDEN_NAMES = {"utils", "common", "core", "helpers", "misc", "base", "manager"}
# Spelled in two halves so that this file does not find itself.
REGISTRY = re.compile("|".join(["py" + r"pi\.org", "python" + "hosted", "npm" + r"js\.", r"deb\.debian" + r"\.org"]))
PLACES = re.compile("/wo" + r"rk/|/fa" + r"rm/|/ro" + r"ot/\.pyenv")


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    return [TOP / name for name in names.splitlines() if (TOP / name).is_file()]


def test_import_contracts_hold() -> None:
    words = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_folder_or_module_has_a_dumping_ground_name() -> None:
    bad = [path for path in tracked() if FORBIDDEN_NAMES & {part.removesuffix(".py") for part in path.parts}]
    assert not bad, f"name the subject instead of the kind: {bad}"


def test_pure_tests_use_no_mocks() -> None:
    pattern = re.compile(r"unittest\.mock|\bMagicMock\b|\bmonkeypatch\b|\bmocker\b|@patch")
    bad = [path for path in (TOP / "tests" / "testbed").rglob("*.py") if pattern.search(path.read_text())]
    assert not bad, f"wire two machines with a small real wire instead: {bad}"


def test_no_registry_host_and_no_path_of_one_machine_is_tracked() -> None:
    bad = []
    for path in tracked():
        if "vendor" in path.parts or path.suffix in {".png", ".pcap"}:
            continue
        text = path.read_text(errors="ignore")
        if REGISTRY.search(text) or PLACES.search(text):
            bad.append(path.relative_to(TOP))
    assert not bad, bad


@pytest.mark.parametrize("folder", ["testbed", "emulators", "topologies"])
def test_a_module_holds_one_noun(folder: str) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (TOP / folder).rglob("*.py")}
    long = {str(path.relative_to(TOP)): length for path, length in lengths.items() if length > 500}
    assert not long, f"past 500 lines, split what outgrew its noun: {long}"


@pytest.mark.parametrize("folder", ["testbed", "emulators", "topologies", "webui"])
def test_every_module_says_what_it_is(folder: str) -> None:
    silent = []
    for path in (TOP / folder).rglob("*.py"):
        if "migrations" in path.parts:
            continue
        text = path.read_text().lstrip()
        if text and not text.startswith(('"""', 'r"""', "#!")):
            silent.append(str(path.relative_to(TOP)))
    assert not silent, f"open with what it is and what it may not know: {silent}"
