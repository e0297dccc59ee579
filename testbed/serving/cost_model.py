"""Step times of a model on a GPU: a table of measured or composed kernel times, interpolated in whole nanoseconds.

Decode is bilinear over (batch, mean context), prefill linear over tokens. Outside the table the nearest segment is
prolonged, beyond the longest prompt as the parabola through the last three points (attention grows with the square),
and the answer says `extrapolated`. Arithmetic is on integers with one division at the end, so the same
step costs the same nanoseconds on every machine. The model knows kernels only: launch costs, host work and memory
limits are others' business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from testbed.serving import profiles
from testbed.serving.profiles import PROFILES
from testbed.units import Nanoseconds, from_milliseconds


class PrefillTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prefill times of one sequence."""

    tokens: tuple[int, ...]
    ms: tuple[float, ...]


class DecodeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of one decode step: `ms[i][j]` is context i, batch j."""

    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    ms: tuple[tuple[float, ...], ...]


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of fixtures/profiles."""

    source: str
    """Where the numbers come from."""
    model: str
    device: str
    prefill: PrefillTable
    decode: DecodeTable
    derived: bool = False
    """True where the table was not measured but scaled from another; `note` says how."""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuses a table that cannot be interpolated."""
        if not self.source.strip():
            raise ValueError("source must say where the numbers come from")
        _check_axis("prefill.tokens", self.prefill.tokens)
        _check_axis("decode.contexts", self.decode.contexts)
        _check_axis("decode.batches", self.decode.batches)
        _check_row("prefill.ms", self.prefill.ms, len(self.prefill.tokens))
        if len(self.decode.ms) != len(self.decode.contexts):
            raise ValueError(f"decode.ms has {len(self.decode.ms)} rows for {len(self.decode.contexts)} contexts")
        for index, row in enumerate(self.decode.ms):
            _check_row(f"decode.ms[{index}]", row, len(self.decode.batches))


def _check_axis(name: str, axis: Sequence[int]) -> None:
    if len(axis) < 2 or list(axis) != sorted(set(axis)) or axis[0] < 1:
        raise ValueError(f"{name} must be at least two positive numbers in ascending order")


def _check_row(name: str, row: Sequence[float], length: int) -> None:
    if len(row) != length:
        raise ValueError(f"{name} has {len(row)} values, its axis {length}")
    if not all(0 < value < 1e9 for value in row):
        raise ValueError(f"{name} must be positive milliseconds")


def read_profile(name: str, folder: Path = PROFILES) -> Profile:
    """Reads `name` from `folder` (at construction time, outside machines). Raises `ProfileError`."""
    return profiles.read(folder / name, Profile)


class StepTime(NamedTuple):
    """How long a graph runs."""

    duration: Nanoseconds
    extrapolated: bool
    """True where the table does not reach and its last segment was prolonged."""


class CostModel:
    """Answers how long a graph runs, from one profile."""

    def __init__(self, profile: Profile, scale: float = 1.0) -> None:
        """`scale` multiplies every time of the table: another engine on the same device."""
        self.profile = profile
        self._prefill = [from_milliseconds(value * scale) for value in profile.prefill.ms]
        self._decode = [[from_milliseconds(value * scale) for value in row] for row in profile.decode.ms]
        self._floor = min(self._decode[0][0], self._prefill[0]) // 2

    @property
    def decode_times(self) -> list[list[Nanoseconds]]:
        """The decode table, scaled: a row a context, a column a batch."""
        return [list(row) for row in self._decode]

    @property
    def floor(self) -> Nanoseconds:
        """No step takes less."""
        return self._floor

    def prefill(self, tokens: int) -> StepTime:
        """Prefill of one sequence of `tokens` tokens (at least 1)."""
        axis = self.profile.prefill.tokens
        if tokens > axis[-1] and len(axis) > 2:
            return StepTime(self._beyond(tokens), extrapolated=True)
        index = _segment(axis, tokens)
        low, high = axis[index], axis[index + 1]
        duration = (self._prefill[index] * (high - tokens) + self._prefill[index + 1] * (tokens - low)) // (high - low)
        return StepTime(max(duration, self._floor), not axis[0] <= tokens <= axis[-1])

    def _beyond(self, tokens: int) -> Nanoseconds:
        """The parabola through the last three points; the last segment's line where they bend downwards."""
        (x0, x1, x2), (y0, y1, y2) = self.profile.prefill.tokens[-3:], self._prefill[-3:]
        slope = (y2 - y1) * (x1 - x0) * (x2 - x0)
        bend = max(0, (y2 - y1) * (x1 - x0) - (y1 - y0) * (x2 - x1))
        more = slope * (tokens - x2) + bend * (tokens - x2) * (tokens - x1)
        return max(y2 + more // ((x2 - x1) * (x1 - x0) * (x2 - x0)), self._floor)

    def decode(self, batch: int, context: int) -> StepTime:
        """One decode step of a graph for `batch` sequences that together hold `context` tokens of KV.

        The table's axis is the mean context; the sum is asked for so that nothing is rounded before the end, and so
        that lanes of the graph that nobody uses cost their place in the batch but read no KV.
        """
        batches, contexts = self.profile.decode.batches, self.profile.decode.contexts
        column = _segment(batches, batch)
        row = _segment(contexts, -(-context // batch))
        b0, b1 = batches[column], batches[column + 1]
        c0, c1 = contexts[row] * batch, contexts[row + 1] * batch
        lower, upper = self._decode[row], self._decode[row + 1]
        at_c0 = lower[column] * (b1 - batch) + lower[column + 1] * (batch - b0)
        at_c1 = upper[column] * (b1 - batch) + upper[column + 1] * (batch - b0)
        duration = (at_c0 * (c1 - context) + at_c1 * (context - c0)) // ((b1 - b0) * (c1 - c0))
        inside = batches[0] <= batch <= batches[-1] and contexts[0] * batch <= context <= contexts[-1] * batch
        return StepTime(max(duration, self._floor), not inside)


def _segment(axis: Sequence[int], value: int) -> int:
    """Index of the segment that `value` lies in; the first or the last one outside."""
    return min(max(bisect_right(axis, value) - 1, 0), len(axis) - 2)
