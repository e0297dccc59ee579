"""The launch window: how many fire-and-forget launches an execution of the scheduler graph has left.

CUDA allows 120 fire-and-forget graphs in total during one execution of their parent; the total is reset when the
parent is launched again (Programming Guide, "Device Graph Launch"; the summary's "outstanding" is not what the guide
says). Blink's scheduler therefore tail-launches itself once a window, and the guide lets a tail launch start only
when the parent and all its children are complete: at the window's edge nothing overlaps. This file counts; it
launches nothing, and what is not allowed raises.
"""

from __future__ import annotations

from testbed.machine import MachineError


class WindowExhausted(MachineError):
    """A launch that the window has no room for."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"all {limit} fire-and-forget launches of this execution are used")


class LaunchWindow:
    """The counter that the scheduler keeps in persistent memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.index = 0
        """Which window this is, from 0."""
        self.used = 0

    @property
    def left(self) -> int:
        """Launches that still have room."""
        return self.limit - self.used

    def take(self) -> int:
        """Counts one launch; returns how many the window has had with it. Raises `WindowExhausted`."""
        if not self.left:
            raise WindowExhausted(self.limit)
        self.used += 1
        return self.used

    def renew(self) -> int:
        """A new execution of the scheduler graph: the count is 0 again. Returns the launches of the old window."""
        launches, self.used = self.used, 0
        self.index += 1
        return launches
