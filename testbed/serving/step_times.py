"""How long a layer of prefill and a decode step take: the compute model of agentic serving, of DualPath's three models.

Attention is a closed form over (cached, computed) token pairs, which is what the in-engine quota packs by (DualPath
6.2, design dualpath 1.5); the rest of a layer is a table over tokens; a decode step is a table over sequences plus
context. The numbers and their sources are the files of fixtures/profiles/dualpath. Integers throughout: the same work
costs the same nanoseconds on every machine. It knows kernels only: no launches, no communication, no memory limits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import msgspec

from testbed.serving import profiles
from testbed.serving.profiles import PROFILES
from testbed.units import Nanoseconds, from_milliseconds

FOLDER = PROFILES / "dualpath"
_PS = 1_000
"""Picoseconds in a nanosecond."""
_PS_PER_MS = 1_000_000_000


class AttentionFit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attention of one layer. Raises ValueError for negative numbers."""

    token_ns: float
    """Of each computed token."""
    pair_ps: float
    """Of each pair of a computed token and a key before it."""
    floor_ms: float
    """Least time of a batch."""
    cached_floor_ms: float
    """Least time of a batch in which something follows a cached prefix."""

    def __post_init__(self) -> None:
        """Refuses what would make time run backwards."""
        if min(self.token_ns, self.pair_ps, self.floor_ms) < 0 or self.cached_floor_ms < self.floor_ms:
            raise ValueError("attention needs numbers from 0, and cached_floor_ms not below floor_ms")


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of one layer for so many tokens. Raises ValueError for what cannot be interpolated."""

    tokens: tuple[int, ...]
    ms: tuple[float, ...]

    def __post_init__(self) -> None:
        """Checks axis and values."""
        _check("rest.tokens", self.tokens, self.ms)


class DecodeCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of one decode step for so many sequences. Raises ValueError for what cannot be interpolated."""

    sequences: tuple[int, ...]
    ms: tuple[float, ...]
    context_ns: float
    """For each token of KV that the sequences have together."""

    def __post_init__(self) -> None:
        """Checks axis and values."""
        _check("decode.sequences", self.sequences, self.ms)
        if self.context_ns < 0:
            raise ValueError("decode.context_ns must be from 0")


def _check(name: str, axis: Sequence[int], ms: Sequence[float]) -> None:
    if len(axis) < 2 or list(axis) != sorted(set(axis)) or axis[0] < 1:
        raise ValueError(f"{name} must be at least two positive numbers in ascending order")
    if len(ms) != len(axis) or list(ms) != sorted(ms) or not 0 < ms[0] <= ms[-1] < 1e9:
        raise ValueError(f"{name} needs as many positive milliseconds, in ascending order")


class StepProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of fixtures/profiles/dualpath."""

    source: str
    """Where the numbers come from."""
    model: str
    device: str
    layers: int
    derived: bool
    """True where they are scaled from another model's; `note` says how."""
    note: str
    attention: AttentionFit
    rest: Curve
    decode: DecodeCurve


class AttentionCost(NamedTuple):
    """Attention of a whole forward batch, all layers together, in picoseconds: the numbers that packing needs.

    A batch of pairs (cached c, computed b) takes the sum of b × token + (b × c + b² / 2) × pair, and at least a floor.
    """

    token: int
    pair: int
    floor: int
    cached_floor: int

    def of(self, pairs: Iterable[tuple[int, int]]) -> int:
        """Picoseconds of a batch; 0 for one that computes nothing."""
        twice, tokens, after_prefix = 0, 0, False
        for cached, computed in pairs:
            twice += computed * (2 * self.token + self.pair * (2 * cached + computed))
            tokens += computed
            after_prefix |= cached > 0 and computed > 0
        if not tokens:
            return 0
        return max(twice // 2, self.cached_floor if after_prefix else self.floor)


def read_step_profile(model: str, folder: Path = FOLDER) -> StepProfile:
    """The profile of `model` (at construction time, outside machines). Raises `ProfileError`."""
    return profiles.read(folder / f"{model}.toml", StepProfile)


class StepTimes:
    """Times of one engine. `layers` may be fewer than the model's: each then takes longer, so that the sum stays."""

    def __init__(self, profile: StepProfile, layers: int | None = None, scale: float = 1.0) -> None:
        self.profile = profile
        self.layers = layers or profile.layers
        self._scale = Fraction(scale).limit_denominator(1_000_000)
        fit, count = profile.attention, profile.layers
        self.attention_cost = AttentionCost(
            self._scaled(round(fit.token_ns * _PS * count)),
            self._scaled(round(fit.pair_ps * count)),
            self._scaled(round(fit.floor_ms * _PS_PER_MS * count)),
            self._scaled(round(fit.cached_floor_ms * _PS_PER_MS * count)),
        )
        """For `testbed.dualpath.batch_quota`."""
        self._rest = [self._scaled(from_milliseconds(ms) * count) for ms in profile.rest.ms]
        self._decode = [self._scaled(from_milliseconds(ms)) for ms in profile.decode.ms]
        self._context = self._scaled(round(profile.decode.context_ns * _PS))

    @classmethod
    def of(cls, model: str, layers: int | None = None, scale: float = 1.0) -> StepTimes:
        """Those of a model of `AGENTIC_MODELS`, all multiplied by `scale`. Reads a file. Raises `ProfileError`."""
        return cls(read_step_profile(model), layers, scale)

    def attention(self, pairs: Iterable[tuple[int, int]]) -> Nanoseconds:
        """Attention of ONE layer for a batch of (tokens whose KV is there, tokens computed now)."""
        return self.attention_cost.of(pairs) // (_PS * self.layers)

    def rest(self, tokens: int) -> Nanoseconds:
        """All but attention of ONE layer (experts, FFN; projections where the profile counts them there)."""
        return _on_curve(self.profile.rest.tokens, self._rest, tokens) // self.layers if tokens else 0

    def prefill(self, pairs: Sequence[tuple[int, int]]) -> Nanoseconds:
        """A whole forward batch: all layers, attention and the rest."""
        tokens = sum(computed for _, computed in pairs)
        return self.layers * (self.attention(pairs) + self.rest(tokens))

    def decode(self, sequences: int, context_tokens: int) -> Nanoseconds:
        """A whole decode step of so many sequences that together have so many tokens of KV."""
        if not sequences:
            return 0
        return _on_curve(self.profile.decode.sequences, self._decode, sequences) + context_tokens * self._context // _PS

    def extrapolated(self, tokens: int) -> bool:
        """Whether the rest of a layer for so many tokens lies outside its table."""
        return not self.profile.rest.tokens[0] <= tokens <= self.profile.rest.tokens[-1]

    def _scaled(self, value: int) -> int:
        return value * self._scale.numerator // self._scale.denominator


def _on_curve(axis: Sequence[int], values: Sequence[int], at: int) -> int:
    """Linear between entries; the last segment is prolonged, below the first entry its value stays."""
    if at <= axis[0]:
        return values[0]
    index = min(bisect_right(axis, at) - 1, len(axis) - 2)
    low, high = axis[index], axis[index + 1]
    return (values[index] * (high - at) + values[index + 1] * (at - low)) // (high - low)
