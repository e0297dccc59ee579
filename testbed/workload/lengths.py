"""How long prompts and answers are, in tokens.

`ShareGpt` gives the means that the Blink paper prints for ShareGPT v3, 1,019 and 463 tokens, by log-normal laws.
The spread of the prompts (sigma 0.56) is fitted to mean and median of 300 tokenised ShareGPT prompts that
LLMServingSim publishes (mean 857, median 732: sqrt(2 ln(857/732)) = 0.56; their logarithms' own deviation is 0.55).
Its answers were cut to at least 512 tokens and tell nothing about the spread, so sigma 0.9 for answers is our
choice. Lengths above a cap become the cap, which lowers the mean; the means hold before the caps.

Prompts and answers draw from streams of their own: another law for one leaves the other as it was. A new kind is a
struct with `pairs` and one entry in `Lengths`. This file knows neither text nor clocks.
"""

from __future__ import annotations

import math
from random import Random
from typing import Annotated, TypeAlias

import msgspec

Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Mean: TypeAlias = Annotated[float, msgspec.Meta(ge=1, le=1_000_000)]
Spread: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=3)]


class ShareGpt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="sharegpt"):
    """Lengths like those of ShareGPT conversations: log-normal, with caps."""

    prompt_mean: Mean = 1019.0
    """Mean prompt before the cap, in tokens (Blink, evaluation set-up)."""
    prompt_sigma: Spread = 0.56
    """Deviation of the prompt length's natural logarithm."""
    prompt_cap: Tokens = 4096
    """Longest prompt."""
    output_mean: Mean = 463.0
    """Mean answer before the cap, in tokens (Blink, evaluation set-up)."""
    output_sigma: Spread = 0.9
    """Deviation of the answer length's natural logarithm; our choice."""
    output_cap: Tokens = 2048
    """Longest answer."""
    long_prompt: Tokens | None = None
    """Prompt of the few requests that send a whole long conversation; None for none of them. A replayed data set has
    its rows in one order, so they come at set places."""
    long_first: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 30
    """Which request is the first of these, from 0."""
    long_every: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1000
    """How many requests later the next one comes."""

    def pairs(self, count: int, prompts: Random, outputs: Random) -> list[tuple[int, int]]:
        """(prompt, answer) lengths of `count` requests."""
        pairs = [
            (
                _log_normal(prompts, self.prompt_mean, self.prompt_sigma, self.prompt_cap),
                _log_normal(outputs, self.output_mean, self.output_sigma, self.output_cap),
            )
            for _ in range(count)
        ]
        if self.long_prompt is not None:
            for place in range(self.long_first, count, self.long_every):
                pairs[place] = (self.long_prompt, pairs[place][1])
        return pairs


class Fixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="fixed"):
    """All requests alike."""

    prompt: Tokens
    """Tokens of every prompt."""
    output: Tokens
    """Tokens of every answer."""

    def pairs(self, count: int, prompts: Random, outputs: Random) -> list[tuple[int, int]]:  # noqa: ARG002
        """(prompt, answer) lengths of `count` requests."""
        return [(self.prompt, self.output)] * count


class Uniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="uniform"):
    """Every length between two bounds, both included, equally often."""

    prompt_low: Tokens
    """Shortest prompt."""
    prompt_high: Tokens
    """Longest prompt."""
    output_low: Tokens
    """Shortest answer."""
    output_high: Tokens
    """Longest answer."""

    def __post_init__(self) -> None:
        if self.prompt_low > self.prompt_high:
            raise ValueError(f"prompt_low {self.prompt_low} is above prompt_high {self.prompt_high}")
        if self.output_low > self.output_high:
            raise ValueError(f"output_low {self.output_low} is above output_high {self.output_high}")

    def pairs(self, count: int, prompts: Random, outputs: Random) -> list[tuple[int, int]]:
        """(prompt, answer) lengths of `count` requests."""
        return [
            (prompts.randint(self.prompt_low, self.prompt_high), outputs.randint(self.output_low, self.output_high))
            for _ in range(count)
        ]


Lengths: TypeAlias = ShareGpt | Fixed | Uniform
"""Every kind of lengths there is."""


def _log_normal(random: Random, mean: float, sigma: float, cap: int) -> int:
    value = random.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)
    return max(1, min(cap, round(value)))
