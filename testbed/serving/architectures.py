"""What models are made of, as far as times of communication need it. From the published configurations (config.json).

`num_hidden_layers`, `hidden_size`, `num_experts`, `num_experts_per_tok` and `moe_intermediate_size`; bytes are two a
number (bf16). Step times of kernels lie in the profiles and not here.
"""

from __future__ import annotations

from typing import NamedTuple

BYTES_A_NUMBER = 2


class Architecture(NamedTuple):
    """One model's shape."""

    layers: int
    hidden: int
    experts: int = 0
    """Experts of a layer; 0 for a dense model."""
    chosen: int = 0
    """Experts that compute each token."""
    expert_hidden: int = 0
    """Inner size of one expert."""

    @property
    def visits(self) -> int:
        """How often a token is computed on its way: once in each layer, or by each of the layer's chosen experts."""
        return self.layers * max(1, self.chosen)

    @property
    def expert_bytes(self) -> int:
        """Weights of one expert of one layer: gate, up and down projection."""
        return 3 * self.hidden * self.expert_hidden * BYTES_A_NUMBER

    @property
    def all_expert_bytes(self) -> int:
        """Weights of all experts of all layers."""
        return self.layers * self.experts * self.expert_bytes


ARCHITECTURES: dict[str, Architecture] = {
    "llama-3-8b": Architecture(32, 4_096),
    "phi-4-15b": Architecture(40, 5_120),
    "qwen-3-32b": Architecture(64, 5_120),
    "qwen-3-30b-a3b": Architecture(48, 2_048, experts=128, chosen=8, expert_hidden=768),
}
"""By the names of `testbed.serving.models.MODELS`."""
