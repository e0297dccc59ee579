"""What can be set about the engine of any server here: the model, its memory, the batch and the captured graphs.

Systems that are compared share these, so that they differ in who drives the engine and where. "Summary" is papers/blink
(arXiv 2604.07609, summarised); "not stated" means that no source has the number.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.graph_cache import DECODE, PREFILL, GraphCache, GraphGrid, decode_batches, sequences_up_to
from testbed.serving.models import H100_HBM_BYTES, MODELS, Model
from testbed.serving.profiles import PROFILES

LARGEST_BATCH = 16_384
"""Our bound: sixteen times what servers here allow at most by default; the grid of graphs grows with it."""


class EngineParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine on one GPU."""

    model: str = "llama-3-8b"
    """Row of `testbed.serving.models.MODELS`. Summary, evaluation: Llama-3 8B, Phi-4 15B, Qwen-3 32B and 30B-A3B."""
    context_tokens: int | None = None
    """Longest prompt and answer together; None takes the model's own."""
    hbm_bytes: int = H100_HBM_BYTES
    """Memory of the GPU. Summary, evaluation: one H100 with 96 GB."""
    activation_bytes: int = 8_000_000_000
    """HBM for activations and the graphs' shared buffers. Our choice: leaves Qwen-3 32B about 20 GB for KV, as
    serving.md 5.2 estimates."""
    kv_block_tokens: int = 32
    """Tokens in a KV block. Not stated; our choice, among the sizes that TensorRT-LLM uses (32 and 64)."""
    kv_blocks: int | None = None
    """Size of the KV pool in blocks; None takes what HBM leaves after weights, graphs and activations."""
    max_batch: int = 80
    """Most sequences in the running batch. Not stated: the free parameter of serving.md 5.2, where Blink's plateau
    for Llama-3 8B is reached at a steady batch of about 82."""
    prefills_per_pause: int = 4
    """Prompts prefilled before a paused batch resumes. Not stated; our choice, so that a pause lengthens a step by
    at most four prefills."""
    engine_time: float = 1.0
    """How many times the model's step-time table its engine takes. 1: the table as it is; the paper's engines as fitted
    are in fixtures/profiles/host-loops.toml (`looplane reproduce`)."""
    graph_bytes: int = 2_500_000
    """HBM of one captured graph. Summary: 2 to 3 MB with TensorRT."""

    def __post_init__(self) -> None:
        """Refuses what no engine could be built from; msgspec reports it with the path."""
        if self.model not in MODELS:
            raise ValueError(f"model {self.model!r} is none of {', '.join(sorted(MODELS))}")
        context = self.context_tokens
        if context is not None and not 2 <= context <= MODELS[self.model].context_tokens:
            raise ValueError(
                f"context_tokens {context} is not between 2 and {self.model}'s {MODELS[self.model].context_tokens}"
            )
        self.check_positive("hbm_bytes", "kv_block_tokens", "max_batch", "prefills_per_pause", "graph_bytes")
        self.check_not_negative("activation_bytes")
        if self.max_batch > LARGEST_BATCH:
            raise ValueError(f"max_batch must be at most {LARGEST_BATCH}, not {self.max_batch}")
        if not 0.01 <= self.engine_time <= 100:
            raise ValueError(f"engine_time must be between 0.01 and 100, not {self.engine_time}")
        if self.kv_blocks is not None and self.kv_blocks < 1:
            raise ValueError(f"kv_blocks must be at least 1, not {self.kv_blocks}")

    def check_positive(self, *names: str) -> None:
        """Raises ValueError for a field below 1."""
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def check_not_negative(self, *names: str) -> None:
        """Raises ValueError for a field below 0."""
        for name in names:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")

    def served_model(self) -> Model:
        """The row of `MODELS`."""
        return MODELS[self.model]

    def cost_model(self, folder: Path = PROFILES) -> CostModel:
        """The times of its graphs (read at construction time, outside machines). Raises `ProfileError`."""
        return CostModel(read_profile(self.served_model().profile, folder), self.engine_time)

    def weights_bytes(self) -> int:
        """Bytes of weights in HBM."""
        return self.served_model().weights_bytes

    def kv_bytes_per_token(self) -> int:
        """Bytes of KV that a token has in HBM."""
        return self.served_model().kv_bytes_per_token

    def context(self) -> int:
        """Longest prompt and answer together, in tokens."""
        return self.context_tokens or self.served_model().context_tokens

    def graphs(self) -> GraphCache:
        """The graphs that the host captures: one sequence a prefill, a dense grid for decode steps."""
        sequences = sequences_up_to(self.context())
        return GraphCache(
            GraphGrid(PREFILL, (1,), sequences),
            GraphGrid(DECODE, decode_batches(self.max_batch), sequences),
            self.graph_bytes,
        )
