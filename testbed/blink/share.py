"""What tells several front ends of one node apart: nothing but the numbers that they may use."""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """Which of several front ends of one node this is: their numbers and tickets must never be the same."""

    place: int = 0
    of: int = 1

    def number(self, count: int) -> int:
        """The `count`-th number of this share, from 1 on."""
        return (count - 1) * self.of + self.place + 1


WHOLE = Share()
"""Of the only front end of a node."""
