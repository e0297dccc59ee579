"""What every test shares: the marks that need something of the host, and their reasons when it is missing."""

from __future__ import annotations

import os
import shutil

import pytest


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
