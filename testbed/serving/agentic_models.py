"""The models of agentic serving with external KV: layers and KV bytes of DualPath's three.

KV bytes a token are not given in the paper; the derivations are those of design dualpath 1.9 [D], checked there
against the paper's Table 1. Weights live in HBM beside the KV and matter here through compute alone.
"""

from __future__ import annotations

import msgspec


class AgenticModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model."""

    name: str
    layers: int
    token_layer_bytes: int
    """Bytes of KV of one token in one layer."""
    active_parameters: int
    """Weights that one token meets: two FLOP each."""
    hidden: int
    """Width of the residual stream: what collectives carry for a token."""
    experts_per_token: int = 0
    """Routed experts of a token; 0 for a dense model."""

    @property
    def token_bytes(self) -> int:
        """Bytes of KV of one token in all layers."""
        return self.layers * self.token_layer_bytes

    def with_layers(self, layers: int | None) -> AgenticModel:
        """The same model in so many coarser layers: the same KV bytes a token, up to rounding up."""
        if layers is None or layers == self.layers:
            return self
        return msgspec.structs.replace(self, layers=layers, token_layer_bytes=-(-self.token_bytes // layers))


_ALL = (
    # Appendix A.2 (30 layers, hidden 2560); 512 FP8 + 16 scale + 128 rope + 132 indexer key, as DS V3.2.
    AgenticModel("ds-27b", 30, 656 + 132, 4_000_000_000, 2_560, 6),
    # DeepSeek-V3.2 in FP8: without the indexer key, which is what the paper's Table 1 implies (serving 5.5).
    AgenticModel("ds-660b", 61, 656, 37_000_000_000, 7_168, 8),
    # Qwen2.5-32B in FP16: 8 KV heads x 128 x 2 (K and V) x 2 bytes.
    AgenticModel("qwen-2.5-32b", 64, 8 * 128 * 2 * 2, 32_763_876_352, 5_120),
)

AGENTIC_MODELS: dict[str, AgenticModel] = {model.name: model for model in _ALL}
"""All of them, by the name that specs use."""
