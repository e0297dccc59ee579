"""The generator against every column of DualPath's Table 2, and the trap that independent draws fall into."""

from __future__ import annotations

from functools import cache
from statistics import correlation, fmean, pstdev

import pytest

from testbed.workload.agent_loads import TableTrajectories
from testbed.workload.paper_table import COLUMNS, draw
from testbed.workload.streams import stream
from testbed.workload.trajectories import Facts, facts

TOLERANCE = 0.01
"""Relative, on the mean of each column over 500 trajectories."""
SEEDS = (1, 2, 3)


@cache
def drawn(row: str, seed: int) -> list[Facts]:
    return [facts(one) for one in TableTrajectories(row=row, agents=500).trajectories(seed)]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("row", COLUMNS)
def test_all_columns_hold_together(row: str, seed: int) -> None:
    columns, found = COLUMNS[row], drawn(row, seed)
    for name in ("turns", "append", "answer", "total", "context"):
        mean = fmean(getattr(one, name) for one in found)
        assert mean == pytest.approx(getattr(columns, name), rel=TOLERANCE), name
    hit_rate = 1 - fmean(one.append for one in found) / fmean(one.context for one in found)
    assert hit_rate == pytest.approx(columns.hit_rate, abs=0.0005)
    assert max(one.total for one in found) <= columns.max_length


def test_the_paper_prints_98_7_percent_for_its_longest_row() -> None:
    assert round(COLUMNS["64k"].hit_rate, 3) == 0.987


@pytest.mark.parametrize("row", COLUMNS)
def test_long_trajectories_have_small_appends(row: str) -> None:
    found = drawn(row, 1)
    assert correlation([one.turns for one in found], [one.append for one in found]) < -0.4


@pytest.mark.parametrize("row", COLUMNS)
def test_the_trap_independent_draws_miss_the_total(row: str) -> None:
    """Turns x (append + answer), each with the very marginals of ours but paired by chance, is far too long."""
    columns, found = COLUMNS[row], drawn(row, 1)
    turns, growth = [one.turns for one in found], [one.append + one.answer for one in found]
    stream(1, "the trap").shuffle(turns)
    total = fmean(many * each for many, each in zip(turns, growth, strict=True))
    assert total > 1.4 * columns.total
    assert total == pytest.approx(columns.turns * (columns.append + columns.answer), rel=0.15)


def test_turns_of_one_trajectory_differ_and_the_first_prompt_is_the_longest_by_far() -> None:
    longest = max(draw(COLUMNS["64k"], 500, 1), key=len)
    later = [append for append, _ in longest[1:]]
    assert pstdev(later) > 0.5 * fmean(later)
    assert longest[0][0] > 10 * fmean(later)


def test_shorter_trajectories_keep_the_shape() -> None:
    columns = COLUMNS["64k"].scaled(4_096, 20)
    found = [facts(one) for one in TableTrajectories(agents=500, max_tokens=4_096, turns=20).trajectories(1)]
    for name in ("turns", "append", "answer", "total", "context"):
        # Lengths are whole tokens and turns have at least one of each, which small numbers feel.
        assert fmean(getattr(one, name) for one in found) == pytest.approx(getattr(columns, name), rel=0.03), name
    assert max(one.total for one in found) <= 4_096


@pytest.mark.parametrize(("max_tokens", "turns"), [(2, 1), (2, 500), (64, 1), (50, 100_000), (None, 1)])
def test_extreme_scales_give_trajectories_all_the_same(max_tokens: int | None, turns: float | None) -> None:
    load = TableTrajectories(agents=20, found_trajectories=20, max_tokens=max_tokens, turns=turns)
    for one in load.trajectories(1):
        assert len(one.rounds) >= 1
        assert all(run.count >= 1 for here in one.rounds for run in (*here.append, *here.answer))
        assert facts(one).total <= (max_tokens or 64 * 1024)
