"""Cache-compute ratio: gigabytes of KV to fetch for one PFLOP of an append (DualPath's Table 1; design 1.9).

    ratio = context bytes / (2 × active parameters × append + attention FLOP)

Attention is counted query by key: four FLOP a head dimension, or those of MLA's absorbed form over the latent; a model
with sparse attention pays for the selected keys, and its indexer for all. KV of sliding windows is left out, which the
paper's figures for GPT-OSS imply. Model constants are those of the models' published configurations. Knows no system.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class CachedModel(NamedTuple):
    """What the ratio needs to know of a model."""

    name: str
    active_parameters: int
    token_bytes: int
    """KV that must be fetched, a token."""
    pair_flop: int
    """FLOP of one query and one key of the context, all layers that look at the whole of it."""
    selected_flop: int = 0
    """The same for a key that sparse attention has selected."""
    selected_keys: int = 0
    """How many it selects for a query."""

    def flop(self, context: int, append: int) -> int:
        """To compute `append` tokens behind `context` tokens; among themselves each meets half of the append."""
        pairs = append * (2 * context + append) // 2
        selected = append * min(self.selected_keys, context)
        return 2 * self.active_parameters * append + self.pair_flop * pairs + self.selected_flop * selected


def _heads(layers: int, heads: int, dimension: int) -> int:
    """FLOP of a pair under ordinary attention: QK and PV, a multiply and an add each."""
    return 4 * layers * heads * dimension


def _latent(layers: int, heads: int) -> int:
    """FLOP of a pair under MLA as it is served from a cache: scores over 512 + 64, values over 512."""
    return 2 * layers * heads * (512 + 64 + 512)


_MLA_BYTES = 656
"""A token in a layer: 512 FP8, 16 of scales, 128 of BF16 positions (design 1.9)."""

CACHED_MODELS: dict[str, CachedModel] = {
    model.name: model
    for model in (
        # FP16; 64 layers, 40 heads over 8 KV heads of 128.
        CachedModel("qwen-2.5-32b", 32_763_876_352, 64 * 2 * 8 * 128 * 2, _heads(64, 40, 128)),
        # 36 layers, every second one a window of 128; 64 heads over 8 KV heads of 64; 5.13e9 active.
        CachedModel("gpt-oss-120b", 5_130_000_000, 18 * 2 * 8 * 64, _heads(18, 64, 64)),
        # 94 layers, 64 heads over 4 KV heads of 128.
        CachedModel("qwen-3-235b-a22b", 22_000_000_000, 94 * 2 * 4 * 128, _heads(94, 64, 128)),
        # 61 layers, 128 heads; the indexer has 64 heads of 128 and selects 2,048 keys.
        CachedModel("deepseek-v3.2", 37_000_000_000, 61 * _MLA_BYTES, 2 * 61 * 64 * 128, _latent(61, 128), 2_048),
        CachedModel("deepseek-v3", 37_000_000_000, 61 * _MLA_BYTES, _latent(61, 128)),
    )
}
"""FP8 where nothing else is said."""


def gbyte_per_pflop(model: CachedModel, context: int, append: int) -> Fraction:
    """GB (1e9) of KV for one PFLOP (1e15) of compute."""
    return Fraction(model.token_bytes * context * 10**6, model.flop(context, append))
