"""A second machine joins a console by `looplane worker`: two state folders with one database, queue and runs folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from consoles import Console, until

from tests.real_servers import Postgres, Redis

pytestmark = pytest.mark.root


@pytest.fixture
def shared(postgres_server: Postgres, redis_server: Redis) -> Iterator[dict[str, str]]:
    """What the two share."""
    runs = Path(tempfile.mkdtemp(prefix="looplane-shared-", dir="/var/tmp"))
    runs.chmod(0o755)
    yield {
        "DATABASE_URL": postgres_server.create("benches"),
        "REDIS_URL": redis_server.url,
        "LOOPLANE_RUNS": str(runs),
    }
    shutil.rmtree(runs, ignore_errors=True)


def test_a_run_goes_where_its_tag_is_and_waits_while_that_bench_is_away(shared: dict[str, str]) -> None:
    console = Console("--bench", "near", environment=shared)
    try:
        far = Console("--bench", "far", "--tags", "lab-2", verb="worker", environment=shared)
        try:
            until(lambda: _is_well(console, "far"), "the bench does not report itself", 40)
            run = console.start("sim", needs=["lab-2"])
            row = console.ended(run)
            assert (row.outcome, row.bench) == ("passed", "far"), row
            assert (Path(shared["LOOPLANE_RUNS"]) / run / "summary.json").is_file()
        finally:
            far.close()
        waits = console.start("sim", needs=["lab-2"])
        here = console.start("sim")
        assert console.ended(here).bench == "near"
        assert console.row(waits).state == "queued"
    finally:
        console.close()


def _is_well(console: Console, bench: str) -> bool | None:
    answer = console.ask("/benches")
    assert answer.status == 200, answer
    benches = answer.body["benches"] if isinstance(answer.body, dict) else answer.body
    return any(one["name"] == bench and one["health"] == "well" for one in benches) or None
