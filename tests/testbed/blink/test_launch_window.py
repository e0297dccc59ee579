from __future__ import annotations

import pytest

from testbed.blink.launch_window import LaunchWindow, WindowExhausted


def test_120_launches_and_not_one_more() -> None:
    window = LaunchWindow(120)
    assert [window.take() for _ in range(120)] == list(range(1, 121))
    with pytest.raises(WindowExhausted, match="120"):
        window.take()
    assert (window.left, window.used) == (0, 120)


def test_a_new_execution_begins_at_nought() -> None:
    window = LaunchWindow(3)
    window.take()
    window.take()
    assert window.renew() == 2
    assert (window.index, window.used, window.left) == (1, 0, 3)


@pytest.mark.parametrize(("used", "prefills", "room"), [(0, 1, True), (1, 1, True), (2, 1, False), (1, 2, False)])
def test_a_prefill_needs_room_for_the_decode_after_it(used: int, prefills: int, room: bool) -> None:
    window = LaunchWindow(3)
    for _ in range(used):
        window.take()
    assert window.has_room(prefills) is room
