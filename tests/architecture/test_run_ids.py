"""runnerd imports the standard library only and so has a pattern of its own; it takes the same ids."""

from __future__ import annotations

import pytest

from testbed.experiment import run_folder
from topologies import runnerd_questions

GOOD = "20260731-120000-0a1b2c"
ODD = ["", "..", GOOD + "\n", GOOD.upper(), GOOD[:-1], GOOD + "0", "x" + GOOD, GOOD.replace("2", "\u0662"),
       GOOD.replace("-", "_"), GOOD + "/..", "20260731-120000-0a1b2g"]  # fmt: skip


@pytest.mark.parametrize("text", [GOOD, run_folder.new_run_id(), *ODD])
def test_both_patterns_take_the_same(text: str) -> None:
    taken = bool(run_folder.RUN_ID.fullmatch(text))
    assert taken == bool(runnerd_questions.RUN_ID.fullmatch(text)) == (text not in ODD)
