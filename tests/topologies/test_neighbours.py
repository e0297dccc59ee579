"""What neighbours ask of the machine before they are started."""

from __future__ import annotations

from bench_plans import plan

from testbed.experiment.plan import NeighbourPlan
from topologies.neighbours import memory_lacking


def test_neighbours_that_the_memory_has_no_room_for_are_named() -> None:
    greedy = NeighbourPlan("greedy", "memory", 256, 64, 4096)
    words = memory_lacking(plan("abcdef", (), neighbours=(greedy,)))
    # 64 containers of 160 MiB, 256 threads of 4,096 and 16.
    assert words.startswith(f"neighbours greedy ask for {64 * 160 + 256 * 4112} MiB of memory, and ")


def test_those_of_the_shipped_experiments_fit() -> None:
    assert memory_lacking(plan("abcdef", (), neighbours=(NeighbourPlan("zip", "pbzip2", 6, 2, 32),))) == ""
    assert memory_lacking(plan("abcdef", ())) == ""
