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
