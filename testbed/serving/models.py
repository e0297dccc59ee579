"""The models that can be served: what the scheduler, the host and the cost model need to know of them.

Weights, KV size and context length follow from the published model configurations; the derivation stands beside
each number. A model's step times lie in fixtures/profiles/ and are read by `testbed.serving.cost_model`.
"""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model on one H100."""

    name: str
    parameters: int
    """Number of weights."""
    weights_bytes: int
    """Bytes of the weights in HBM: two a parameter (bf16)."""
    kv_bytes_per_token: int
    """Bytes of KV one token occupies: layers x KV heads x head size x 2 (K and V) x 2 (bf16)."""
    context_tokens: int
    """Longest prompt and answer together (`max_position_embeddings` of the published configuration)."""
    profile: str
    """File name in fixtures/profiles."""
    profile_derived: bool = False
    """True where no table was measured and the profile is another model's, scaled (the file says how)."""


H100_HBM_BYTES = 96_000_000_000
"""The card of Blink's evaluation: one H100 with 96 GB of HBM3 (summary, evaluation)."""

_LLAMA_3_8B = Model(
    name="llama-3-8b",
    parameters=8_030_261_248,
    weights_bytes=2 * 8_030_261_248,
    kv_bytes_per_token=32 * 8 * 128 * 2 * 2,
    context_tokens=8_192,
    profile="llama-3-8b.toml",
)
_PHI_4_15B = Model(
    name="phi-4-15b",
    parameters=14_659_507_200,
    weights_bytes=2 * 14_659_507_200,
    kv_bytes_per_token=40 * 10 * 128 * 2 * 2,
    context_tokens=16_384,
    profile="phi-4-15b.toml",
    profile_derived=True,
)
_QWEN_3_32B = Model(
    name="qwen-3-32b",
    parameters=32_762_123_264,
    weights_bytes=2 * 32_762_123_264,
    kv_bytes_per_token=64 * 8 * 128 * 2 * 2,
    context_tokens=40_960,
    profile="qwen-3-32b.toml",
)
_QWEN_3_30B_A3B = Model(
    name="qwen-3-30b-a3b",
    parameters=30_532_122_624,
    weights_bytes=2 * 30_532_122_624,
    kv_bytes_per_token=48 * 4 * 128 * 2 * 2,
    context_tokens=40_960,
    profile="qwen-3-30b-a3b.toml",
)

MODELS: dict[str, Model] = {model.name: model for model in (_LLAMA_3_8B, _PHI_4_15B, _QWEN_3_32B, _QWEN_3_30B_A3B)}
"""All models, by the name that specs and the API use: the four of Blink's evaluation."""
