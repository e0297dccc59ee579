"""runnerd imports the standard library only and so has a pattern of its own; it takes the same ids."""

from __future__ import annotations

import pytest

from testbed.experiment import run_folder
from topologies import runnerd_questions

GOOD = "20260731-120000-0a1b2c"
ODD = ["", "..", GOOD + "\n", GOOD.upper(), GOOD[:-1], GOOD + "0", "x" + GOOD, GOOD.replace("2", "\u0662"),
       GOOD.replace("-", "_"), GOOD + "/..", "20260731-120000-0a1b2g"]  # fmt: skip


@pytest.mark.parametrize("text", [GOOD, *ODD])
def test_both_patterns_take_the_same(text: str) -> None:
    taken = bool(run_folder.RUN_ID.fullmatch(text))
    assert taken == bool(runnerd_questions.RUN_ID.fullmatch(text)) == (text not in ODD)


def test_a_new_id_is_taken_by_both() -> None:
    made = run_folder.new_run_id()
    assert run_folder.RUN_ID.fullmatch(made)
    assert runnerd_questions.RUN_ID.fullmatch(made)
