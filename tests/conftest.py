"""What every test shares: marks that need something of the host, reasons when it is missing, no timed examples."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.real_servers import Postgres, Redis, postgres_programs, started

# How long an example takes is the host's business, which may have two cores and much else to do.
settings.register_profile("looplane", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("looplane")

SOAK_NOTES = pytest.StashKey[list[str]]()
"""What `soak_note` was told, in the order of the tests."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SOAK_NOTES] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was repeated and how it came out, as lines that can be pasted."""
    if notes := config.stash[SOAK_NOTES]:
        terminalreporter.section("repeated in full" if config.getoption("--soak") else "repeated, shortened")
        for note in notes:
            terminalreporter.line(note)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist hands its notes to the one that prints."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["soak_notes"] = session.config.stash[SOAK_NOTES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[SOAK_NOTES].extend(getattr(node, "workeroutput", {}).get("soak_notes", []))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long repetitions in full")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark, reason in _missing().items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing() -> dict[str, str]:
    missing: dict[str, str] = {}
    if os.geteuid() != 0:
        missing["root"] = "needs root: it makes network namespaces"
        missing["docker"] = "needs root: it starts containers"
    elif not any(map(shutil.which, ("dockerd", "docker"))):
        missing["docker"] = "needs a Docker engine (apt-get install docker.io)"
    if not os.path.exists(os.environ.get("CHROMIUM", "/usr/bin/chromium")):
        missing["browser"] = "needs Chromium (apt-get install chromium, or set CHROMIUM)"
    return missing


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """True in `looplane test --soak`: repeat in full what is shortened otherwise."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture
def soak_note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Notes a line for the end of the test run: `soak_note("20 kills of rnic: leftovers 0")`."""
    return request.config.stash[SOAK_NOTES].append


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL of the tests' own, without fsync."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL's programs (apt-get install postgresql)")
    server = started(lambda: Postgres(programs))
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """A Redis of the tests' own, which keeps nothing on disk."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("needs redis-server (apt-get install redis-server)")
    server = started(lambda: Redis(program))
    yield server
    server.close()
