from __future__ import annotations

from enum import Enum

import pytest

from testbed.machine import MachineError
from testbed.serving.transitions import IllegalMove, Transitions


class Door(Enum):
    OPEN = 1
    SHUT = 2


class Push(Enum):
    OPEN_IT = 1
    SHUT_IT = 2


TABLE = Transitions("door", Door.OPEN, {(Door.OPEN, Push.SHUT_IT): Door.SHUT, (Door.SHUT, Push.OPEN_IT): Door.OPEN})


def test_the_table_is_followed() -> None:
    assert TABLE.after(Door.OPEN, Push.SHUT_IT) is Door.SHUT
    assert TABLE.allows(Door.SHUT, Push.OPEN_IT)


def test_what_is_not_in_the_table_is_our_fault_and_says_what() -> None:
    assert not TABLE.allows(Door.OPEN, Push.OPEN_IT)
    with pytest.raises(IllegalMove, match="door: no move open_it in state open") as caught:
        TABLE.after(Door.OPEN, Push.OPEN_IT)
    assert isinstance(caught.value, MachineError)


def test_the_drawing_has_every_move() -> None:
    assert TABLE.mermaid() == (
        "stateDiagram-v2\n    [*] --> open\n    open --> shut: shut_it\n    shut --> open: open_it\n"
    )
