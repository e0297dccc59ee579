"""What the command's exit codes mean, for shells and CI."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """One meaning a code; every verb keeps to it."""

    PASSED = 0
    EXPECTATION_FAILED = 1
    BAD_INPUT = 2
    HOST_CANNOT = 3
    """This host cannot do it; the message says why and what would help."""
    ERRORED = 4
    """The run errored, was cancelled or lost, or its fidelity is invalid."""


class CommandError(Exception):
    """Ends a verb with one line on standard error and `code`."""

    def __init__(self, message: str, code: ExitCode) -> None:
        self.code = code
        super().__init__(message)
