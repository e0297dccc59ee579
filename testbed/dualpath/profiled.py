"""What the central scheduler knows before the first turn: alpha, beta, and how much memory nodes and engines have.

DualPath profiles alpha and beta beforehand (A.4): tokens that a node reads in 3 s, and that one GPU processes in 5 s.
Here they follow from the declared rates and the compute model. Plain arithmetic; knows no plan and no machine.
"""

from __future__ import annotations

import msgspec
import numpy as np

from testbed.dualpath.batch_quota import NO_QUOTA, pack
from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.parameters import DualPathParameters
from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.serving.step_times import StepTimes
from testbed.units import SECOND, Nanoseconds

ALPHA_TIME: Nanoseconds = 3 * SECOND
BETA_TIME: Nanoseconds = 5 * SECOND
CONTEXT_TOKENS = 32_721
APPEND_TOKENS = 429
"""The mean turn of the paper's 64K trace (Table 2), for which beta is worked out."""
_TURNS = 64
_PICOSECONDS = 1_000


class Profiled(msgspec.Struct, frozen=True):
    """Tokens and Full Blocks."""

    alpha_tokens: int
    beta_tokens: int
    hbm_blocks: int
    """Of one engine."""
    prefill_buffer_blocks: int
    """Of one node."""
    decode_buffer_blocks: int


def profiled(parameters: DualPathParameters, snic_bits_per_s: int) -> Profiled:
    """For a system's parameters and the true rate of its storage NICs. Reads the model's step times (ProfileError)."""
    model = AGENTIC_MODELS[parameters.model].with_layers(parameters.layers)
    shape = BlockShape(model.layers, parameters.block_tokens, model.token_layer_bytes)
    alpha, beta = parameters.alpha_tokens, parameters.beta_tokens
    return Profiled(
        readable_tokens(parameters, snic_bits_per_s, ALPHA_TIME) if alpha is None else alpha,
        processed_tokens(parameters, BETA_TIME) if beta is None else beta,
        parameters.hbm_kv_bytes // shape.full_bytes,
        parameters.prefill_buffer_bytes // shape.full_bytes,
        parameters.decode_buffer_bytes // shape.full_bytes,
    )


def readable_tokens(parameters: DualPathParameters, snic_bits_per_s: int, time: Nanoseconds) -> int:
    """Tokens whose KV all SNICs of a node bring in `time` at their full rate."""
    bits = snic_bits_per_s * parameters.storage_nics * time // SECOND
    return bits // (8 * AGENTIC_MODELS[parameters.model].with_layers(parameters.layers).token_bytes)


def processed_tokens(parameters: DualPathParameters, time: Nanoseconds) -> int:
    """Prompt tokens, hits included, that one prefill engine gets through in `time` when turns wait in front of it.

    Hits are included since `tok_e` has them too: one measure for both (the paper does not say; without them an engine
    would be "overloaded" by a few turns). Turns are the mean of the paper's trace, batches are packed as engines do.
    """
    times = StepTimes.of(parameters.model, parameters.layers, parameters.compute_scale)
    cost = times.attention_cost
    computed = np.zeros(_TURNS, np.int64)
    quota = NO_QUOTA if parameters.quota is None else parameters.quota * _PICOSECONDS
    turns = pack(
        np.full(_TURNS, CONTEXT_TOKENS, np.int64), np.full(_TURNS, APPEND_TOKENS, np.int64), cost.token, cost.pair,
        quota, parameters.chunk_tokens, parameters.batch_tokens, computed,
    )  # fmt: skip
    batch = [(CONTEXT_TOKENS, int(tokens)) for tokens in computed[:turns]]
    # As many prompts are through as appends are computed; the last turn may be a part of one.
    prompts = sum(tokens for _, tokens in batch) * (CONTEXT_TOKENS + APPEND_TOKENS) // APPEND_TOKENS
    return max(1, prompts * time // times.prefill(batch))
