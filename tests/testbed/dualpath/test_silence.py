from __future__ import annotations

from testbed.dualpath.silence import Silence

KNOCK, PATIENCE = 100, 1_000


def test_nobody_is_knocked_at_who_owes_nothing() -> None:
    silence = Silence(KNOCK, PATIENCE)
    assert silence.deadline() is None
    silence.asked(0, "a")
    silence.heard(10, "a")
    silence.heard(11, "b")
    assert silence.deadline() is None
    assert silence.due(5_000) == ([], [])


def test_who_owes_an_answer_is_knocked_at_and_given_up_in_the_end() -> None:
    silence = Silence(KNOCK, PATIENCE)
    silence.asked(0, "a")
    moments = []
    while (deadline := silence.deadline()) is not None:
        knock, lost = silence.due(deadline)
        moments.append((deadline, tuple(knock), tuple(lost)))
    assert moments == [*((100 * n, ("a",), ()) for n in range(1, 10)), (1_000, (), ("a",))]


def test_every_answer_begins_the_patience_anew() -> None:
    silence = Silence(KNOCK, PATIENCE)
    for _ in range(3):
        silence.asked(0, "a")
    silence.heard(950, "a")
    assert silence.due(1_000) == ([], [])
    assert silence.due(1_050) == (["a"], [])
    silence.heard(1_060, "a", answers=0)
    assert silence.deadline() == 1_160
    silence.heard(1_070, "a", answers=2)
    assert silence.deadline() is None


def test_one_silent_node_does_not_hide_another() -> None:
    silence = Silence(KNOCK, PATIENCE)
    silence.asked(0, "a")
    silence.asked(950, "b")
    silence.due(950)
    assert silence.due(1_050) == (["b"], ["a"])
    silence.forget("b")
    assert silence.deadline() is None
