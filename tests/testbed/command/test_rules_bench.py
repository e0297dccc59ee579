"""The loop that `looplane bench placements_per_s` times decides the same compiled and as Python."""

import numpy as np

from testbed.command.rules_bench import DECODE_NODES, ENGINES, PREFILL_NODES, decisions, fresh, placements_per_s

TURNS = 400


def test_a_run_of_turns_over_1152_engines_is_placed_alike_by_both():
    plain, native = fresh(TURNS), fresh(TURNS)
    decisions(False)(TURNS, *plain)
    decisions(True)(TURNS, *native)
    for left, right in zip(plain, native, strict=True):
        assert np.array_equal(left, right)
    prefill, group, decode = plain[-1]
    assert (PREFILL_NODES + DECODE_NODES) * ENGINES == 1_152
    assert np.array_equal(prefill // ENGINES, np.arange(TURNS) % PREFILL_NODES)
    assert np.array_equal(decode // ENGINES, group)
    assert len(set(group.tolist())) == DECODE_NODES


def test_there_is_one_figure_a_repeat():
    rates = placements_per_s(False, 20, repeats=3)
    assert len(rates) == 3
    assert min(rates) > 0
