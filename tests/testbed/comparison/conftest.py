"""A small finished run with two systems, a sweep of two points and two repeats, through the command's own functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.comparison.digest import make_digest, read_digest
from testbed.comparison.sides import RunRead, read_run
from testbed.experiment.run_folder import RunFolder
from tests.simulated_runs import simulated

SMALL = Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml"
SETTINGS = (
    "workload.requests=12",
    "workload.lengths.output_high=8",
    "repeats=2",
    'systems.other={kind = "blink", max_batch = 4}',
    'sweep={"workload.arrivals.rate_per_s" = [50, 200]}',
    (
        'expect={"systems.blink.ttft_ms.p50" = {at_most = 1000}, "systems.other.requests.failed" = {equals = 0}, '
        '"ratio(systems.other.ttft_ms.mean, systems.blink.ttft_ms.mean)" = {at_least = 0.01}}'
    ),
)


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return simulated(SMALL, SETTINGS, tmp_path_factory.mktemp("swept"))


@pytest.fixture(scope="session")
def place(swept: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its digest is kept."""
    place = tmp_path_factory.mktemp("digest")
    assert not make_digest(swept, place).fault
    return place


@pytest.fixture(scope="session")
def read(swept: RunFolder, place: Path) -> RunRead:
    return read_run(swept, read_digest(place))
