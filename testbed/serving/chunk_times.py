"""How long part of a prompt takes, from the same table as whole prompts: our composition, no measurement.

With P(n) for the prefill of n tokens by the table and P(0) for its value at none (what every launch pays, weights
above all), a chunk of c tokens behind p tokens whose KV is there costs

    alone:               P(0) + P(p + c) - P(p)
    with a decode step:  D + P(p + c) - P(p)          the weights are read once, for the decode step D

so the chunks of one prompt together cost its whole prefill and P(0) for each chunk after the first. Sarathi-Serve
(arXiv 2403.02310) gives the reason; the table has no chunks of its own.
"""

from __future__ import annotations

from testbed.serving.cost_model import CostModel, StepTime


def chunk_time(cost_model: CostModel, tokens: int, before: int) -> StepTime:
    """A graph of its own for `tokens` tokens of one prompt, behind `before` that have KV already."""
    if not before:
        return cost_model.prefill(tokens)
    return _added(cost_model, cost_model.prefill(0).duration, tokens, before)


def riding_time(cost_model: CostModel, decode: StepTime, tokens: int, before: int) -> StepTime:
    """A decode step that lasts `decode` by itself and computes a chunk beside it."""
    both = _added(cost_model, decode.duration, tokens, before)
    return StepTime(both.duration, both.extrapolated or decode.extrapolated)


def _added(cost_model: CostModel, base: int, tokens: int, before: int) -> StepTime:
    whole = cost_model.prefill(before + tokens)
    return StepTime(base + whole.duration - cost_model.prefill(before).duration, whole.extrapolated)
