"""Runs to compare: two systems at two points of a sweep, and the recorded run of one trial."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from testbed.comparison.digest import make_digest
from testbed.experiment.run_folder import RunFolder
from tests.simulated_runs import simulated
from webui.compare import digests as kept

EXPERIMENT = Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml"
SETTINGS = (
    "workload.requests=10",
    "workload.lengths.output_high=8",
    'systems.other={kind = "blink", max_batch = 2}',
    'sweep={"workload.arrivals.rate_per_s" = [50, 200]}',
    'expect={"systems.blink.ttft_ms.p50" = {at_most = 100}}',
)
SWEPT = "20261130-120000-0a1b2c"


@pytest.fixture(scope="session")
def swept_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(EXPERIMENT, SETTINGS, tmp_path_factory.mktemp("swept")).path


@pytest.fixture
def digests() -> Iterator[Path]:
    """Where digests are kept; empty before and after."""
    place = Path(settings.DATABASE_FOLDER) / "compare"
    shutil.rmtree(place, ignore_errors=True)
    yield place
    for process, _ in kept._making.values():
        process.wait(60)
    kept._making.clear()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def digest_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The digest of a run folder, made once in this process: what the console's own child would have made."""
    known: dict[Path, Path] = {}

    def make(folder: Path) -> Path:
        if folder not in known:
            known[folder] = tmp_path_factory.mktemp("digest")
            assert not make_digest(RunFolder(folder), known[folder]).fault
        return known[folder]

    return make


@pytest.fixture
def finished(
    make_run: Callable[..., Any], put_run: Callable[[str], Path], digests: Path, recorded_run: Path,
    digest_of: Callable[[Path], Path],
) -> Callable[..., Any]:  # fmt: skip
    """A finished run of one trial with its folder."""

    def make(run_id: str = "20261130-110000-0a0a01", *, digested: bool = True, **fields: Any) -> Any:
        put_run(run_id)
        if digested:
            shutil.copytree(digest_of(recorded_run), digests / run_id)
        plain = {"id": run_id, "state": "finished", "outcome": "passed", "systems": ["blink"]}
        return make_run(**{**plain, **fields})

    return make


@pytest.fixture
def swept(
    make_run: Callable[..., Any], swept_folder: Path, runs_folder: Path, digests: Path,
    digest_of: Callable[[Path], Path],
) -> Iterator[Any]:  # fmt: skip
    """The sweep as a run of the user's."""
    target = runs_folder / SWEPT
    shutil.copytree(swept_folder, target)
    shutil.copytree(digest_of(swept_folder), digests / SWEPT)
    yield make_run(
        id=SWEPT, state="finished", outcome="passed", systems=["blink", "other"], overrides=list(SETTINGS),
        question="Which <b>batch</b>?",
    )  # fmt: skip
    shutil.rmtree(target, ignore_errors=True)
