"""Two things of the kernel's timers that Python 3.11 has no names for: timerfd, and the slack of sleeps.

A timerfd wakes an asyncio loop on time, where `call_at` rounds to whole milliseconds; a slack of 1 ns takes the
50 µs off every sleep that the kernel adds by default to save power.
"""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_PR_SET_TIMERSLACK = 29
_SECOND = 1_000_000_000


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def set_timer_slack(slack_ns: int = 1) -> None:
    """Sets how late the kernel may wake this thread from a sleep on purpose. Raises OSError."""
    _check(_libc.prctl(_PR_SET_TIMERSLACK, slack_ns, 0, 0, 0))


class DeadlineTimer:
    """A descriptor that becomes readable at one moment of the monotonic clock."""

    def __init__(self) -> None:
        self._fd = _check(_libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        self._spec = _TimerSpec()
        self._reference = ctypes.byref(self._spec)

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def set(self, monotonic: int | None) -> None:
        """Readable from the reading `monotonic` on (at once if it has passed); None: never. Replaces what was set."""
        moment = 0 if monotonic is None else max(monotonic, 1)
        self._spec.value.seconds, self._spec.value.nanoseconds = divmod(moment, _SECOND)
        _check(_libc.timerfd_settime(self._fd, _ABSOLUTE, self._reference, None))

    def clear(self) -> None:
        """Takes note that it has fired: no longer readable until it is set again."""
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Closes the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
