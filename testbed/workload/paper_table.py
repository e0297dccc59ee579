"""Trajectories by DualPath's Table 2: all its columns at once, which independent draws cannot do.

The columns are means of per-trajectory values: turns x (append + generate) of the 64K row is 94,985, far above its
Total of 55,958 (design dualpath 1.10 [D]). So trajectories with many turns have short ones. The law here:

    length L of a trajectory  = max_length * U ** k, U uniform, k from mean L = Total; no length is above the maximum
    turns T                   log-normal, independent of L, mean Turns, sigma^2 = ln(Turns (Append + Gen) / Total)
    tokens a turn             L / T, whose mean then is Append + Gen, since E[1/T] = exp(sigma^2) / E[T]
    answers                   the share Gen / (Append + Gen) of every trajectory
    first prompt              the share of L by which the mean context is Context: with equal turns after it, a
                              trajectory's mean context is (first + L) (T - 1) / 2T

The three rows give sigma 0.68, 0.69 and 0.73 and first prompts of 6.7, 8.4 and 10.2 thousand tokens. The paper states
none of these laws; the log-normal, the power and the spread of single turns (0.9, as of ShareGPT's answers) are our
choice. Values are taken at the quantiles of their laws, in a chance order, so a set's means are the table's without
sampling noise (about 1 %, held by a test). Hit rate is 1 - Append / Context, as there.
"""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist

import msgspec

from testbed.workload.streams import stream

_SPREAD = 0.9
"""Deviation of the logarithm of one turn's length around its trajectory's mean."""


class Columns(msgspec.Struct, frozen=True):
    """One row of the table, in tokens."""

    max_length: int
    turns: float
    append: float
    answer: float
    total: float
    context: float

    @property
    def hit_rate(self) -> float:
        """1 - append / context, as the paper's 98.7 % of the 64K row."""
        return 1 - self.append / self.context

    @property
    def sigma(self) -> float:
        """Deviation of the logarithm of turns; 0 where the columns need none."""
        return math.sqrt(max(0.0, math.log(self.turns * (self.append + self.answer) / self.total)))

    @property
    def first_share(self) -> float:
        """First prompt over the trajectory's length; at least what leaves the later turns something."""
        one_over_turns = math.exp(self.sigma**2) / self.turns
        share = 2 * self.context / self.total / max(1e-9, 1 - one_over_turns) - 1
        return min(max(share, 0.0), 0.95 * self.append / (self.append + self.answer))

    def scaled(self, max_tokens: int | None, turns: float | None) -> Columns:
        """The same shape for another longest trajectory and another mean of turns."""
        lengths = 1.0 if max_tokens is None else max_tokens / self.max_length
        fewer = 1.0 if turns is None else self.turns / turns
        return Columns(
            max_length=self.max_length if max_tokens is None else max_tokens,
            turns=self.turns / fewer,
            append=self.append * lengths * fewer,
            answer=self.answer * lengths * fewer,
            total=self.total * lengths,
            context=self.context * lengths,
        )


COLUMNS = {
    "32k": Columns(32 * 1024, 60, 608, 148, 28_639, 17_183),
    "48k": Columns(48 * 1024, 106, 474, 172, 42_607, 25_120),
    "64k": Columns(64 * 1024, 157, 429, 176, 55_958, 32_721),
}
"""DualPath's Table 2."""


def draw(columns: Columns, count: int, seed: int) -> list[list[tuple[int, int]]]:
    """(append, answer) lengths of each turn of `count` trajectories."""
    return [
        _rounds(columns, length, turns, stream(seed, "trajectory", number))
        for number, (length, turns) in enumerate(shapes(columns, count, seed))
    ]


def shapes(columns: Columns, count: int, seed: int) -> list[tuple[int, int]]:
    """(length, turns) of `count` trajectories."""
    lengths = _lengths(columns, count, stream(seed, "trajectory lengths"))
    turns = _turns(columns, count, stream(seed, "trajectory turns"))
    # Every turn has at least one token of each.
    return [(length, max(1, min(many, length // 2))) for length, many in zip(lengths, turns, strict=True)]


def _lengths(columns: Columns, count: int, random: Random) -> list[int]:
    power = max(0.0, columns.max_length / columns.total - 1)
    values = [max(2, round(columns.max_length * _quantile(number, count) ** power)) for number in range(count)]
    random.shuffle(values)
    return values


def _turns(columns: Columns, count: int, random: Random) -> list[int]:
    law = NormalDist()
    sigma = columns.sigma
    values = [math.exp(sigma * law.inv_cdf(_quantile(number, count))) for number in range(count)]
    # Quantiles leave the far tail out; what that takes from the mean is given back to all alike.
    scale = columns.turns * count / sum(values)
    random.shuffle(values)
    return [max(1, round(value * scale)) for value in values]


def _rounds(columns: Columns, length: int, turns: int, random: Random) -> list[tuple[int, int]]:
    answers = max(turns, round(length * columns.answer / (columns.append + columns.answer)))
    answers = min(answers, length - turns)
    appended = length - answers
    first = min(round(length * columns.first_share), appended - turns)
    later = _shared(appended - max(first, 0), turns, random)
    later[0] += max(first, 0)
    return list(zip(later, _shared(answers, turns, random), strict=True))


def _shared(tokens: int, parts: int, random: Random) -> list[int]:
    """`tokens` in `parts` parts of at least 1, log-normal in size, their sum exact."""
    weights = [random.lognormvariate(0.0, _SPREAD) for _ in range(parts)]
    whole, free = sum(weights), tokens - parts
    shares = [1 + int(free * weight / whole) for weight in weights]
    for place in range(tokens - sum(shares)):
        shares[place % parts] += 1
    return shares


def _quantile(number: int, count: int) -> float:
    return (number + 0.5) / count
