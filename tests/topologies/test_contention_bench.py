"""The shipped profile of contention is what the bench prints, and says that more neighbours take more."""

from __future__ import annotations

import tomllib

import pytest

from testbed.experiment.plan import NeighbourPlan
from testbed.experiment.surroundings import read_contention
from testbed.serving.profiles import PROFILES
from topologies.contention_bench import LADDER, OTHERS


def test_the_shipped_profile_has_the_rows_that_the_bench_measures() -> None:
    found = read_contention()
    assert [row.threads for row in found.rows] == list(LADDER)
    assert "./looplane calibrate --contention" in found.source
    kinds = tomllib.loads((PROFILES / "host-contention.toml").read_text())["kinds"]
    assert {(kind, row["threads"]) for kind, row in kinds.items()} == set(OTHERS)


def test_more_tenants_mean_longer_stalls_and_later_wakes() -> None:
    """A container is one thing that the kernel is fair to, so more of them leave the loop less of its core."""
    rows = read_contention().rows
    middle = [row.stall_ms[len(row.stall_ms) // 2] for row in rows]
    assert middle == sorted(middle)
    assert middle[-1] > 3 * middle[0]
    assert rows[-1].wake_ms[20] > rows[0].wake_ms[20]
    assert all(row.slowdown >= 1 for row in rows)


@pytest.mark.parametrize(
    ("threads", "containers", "each"), [(4, 1, [4]), (5, 2, [3, 2]), (2, 8, [1, 1]), (12, 4, [3, 3, 3, 3])]
)
def test_threads_are_shared_among_containers(threads: int, containers: int, each: list[int]) -> None:
    assert list(NeighbourPlan("n", "pbzip2", threads, containers, 32).shares()) == each
