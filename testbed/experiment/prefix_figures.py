"""A resident scheduler's prefix cache in a summary: its hit share, pooled over a system's repeats.

Made from the fold `testbed.metrics.prefix_cache`. None where no prompt was looked up: without a prefix cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from testbed.metrics.prefix_cache import PrefixState

PREFIX_METRICS: dict[str, str] = {
    "prefix_cache.hit_rate": "cached tokens ÷ prompt tokens of all claimed prompts, 0 to 1",
    "prefix_cache.prompts": "claimed prompts that were looked up",
    "prefix_cache.hits": "prompts of which a beginning was found",
    "prefix_cache.prompt_tokens": "tokens of all claimed prompts",
    "prefix_cache.cached_tokens": "prompt tokens whose KV was found and not computed again",
    "prefix_cache.evicted_blocks": "remembered KV blocks that had to make room",
}
"""Metrics of a prefix cache, with their meaning."""
ALLOWED_PREFIX = f"prefix_cache.{{{','.join(name.partition('.')[2] for name in PREFIX_METRICS)}}}"
"""The same, folded together for people."""


class PrefixFigures(msgspec.Struct, frozen=True):
    """Of all repeats together."""

    hit_rate: float | None
    """Cached tokens ÷ prompt tokens."""
    prompts: int
    hits: int
    prompt_tokens: int
    cached_tokens: int
    evicted_blocks: int


def prefix_figures(trials: Sequence[PrefixState]) -> PrefixFigures | None:
    """The figures of all trials: their counts added."""
    prompts = sum(trial.prompts for trial in trials)
    if not prompts:
        return None
    tokens, cached = sum(trial.prompt_tokens for trial in trials), sum(trial.cached_tokens for trial in trials)
    return PrefixFigures(
        hit_rate=round(cached / tokens, 6) if tokens else None,
        prompts=prompts,
        hits=sum(trial.hits for trial in trials),
        prompt_tokens=tokens,
        cached_tokens=cached,
        evicted_blocks=sum(trial.evicted_blocks for trial in trials),
    )


def prefix_lines(figures: PrefixFigures | None) -> Iterator[tuple[str, str]]:
    """Heading and words for people; nothing where there is no prefix cache."""
    if figures is None:
        return
    share = "-" if figures.hit_rate is None else f"{100 * figures.hit_rate:.1f} %"
    words = (
        f"{share} of {figures.prompt_tokens:,} prompt tokens found ({figures.cached_tokens:,}), in {figures.hits:,} of "
        f"{figures.prompts:,} prompts"
    )
    evicted = figures.evicted_blocks
    yield "prefixes", f"{words}; {evicted:,} blocks made room" if evicted else words
