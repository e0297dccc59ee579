"""Speculative decoding as a model: how many drafted tokens a step gains, and what drafting and checking cost.

A small model drafts k tokens for each sequence, one step of the large one checks them all (Leviathan et al., "Fast
Inference from Transformers via Speculative Decoding", arXiv 2211.17192). Each draft is taken with the same probability
a, by itself, until the first that is not; the step's own token comes behind, so a step gives (1 - a^(k+1)) / (1 - a)
tokens in the mean. What is said stays what the large model would have said. Simulated only: nothing is drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

import msgspec

from testbed.serving.chunk_times import riding_time
from testbed.serving.cost_model import CostModel, StepTime
from testbed.serving.engine import Engine, Lane
from testbed.serving.graph_cache import DECODE, MIXED, Graph

NO_TOKEN = (1 << 32) - 1
"""What lies in the extraction buffer in place of a token that was not drawn."""


class Speculation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Drafts for every sequence of every decode step."""

    draft_tokens: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4
    """Tokens drafted for each sequence a step. Our choice; Leviathan et al. try 3 to 10."""
    acceptance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7
    """Probability that a draft is taken, given those before it were. Our choice; Leviathan et al. report 0.5 to 0.9."""
    draft_cost: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    """Time of one drafted token, as a share of the large model's decode step. Leviathan et al.: below 0.05."""

    def taken(self, lane: Lane) -> int:
        """How many of the drafts for `lane` are taken: by its seed and place, whatever runs beside it."""
        for draft in range(self.draft_tokens):
            said = blake2b(f"{lane.seed}/{lane.place}/{draft}".encode(), digest_size=8).digest()
            if int.from_bytes(said) >= self.acceptance * (1 << 64):
                return draft
        return self.draft_tokens

    def draw(self, engine: Engine, graph: Graph, lanes: Sequence[Lane]) -> tuple[tuple[int, ...], ...]:
        """The tokens of each lane: its drafts that are taken and the step's own; one behind a prompt."""
        prompts = 0 if graph.kind == DECODE else 1 if graph.kind == MIXED else len(lanes)
        decoding = len(lanes) - prompts
        return tuple(
            engine.run(lane, 1 + self.taken(lane) if place < decoding else 1) for place, lane in enumerate(lanes)
        )

    def time(self, cost_model: CostModel, graph: Graph, step: StepTime) -> StepTime:
        """A step that lasts `step` without drafts. They are checked like a chunk of a prompt beside it."""
        if graph.kind not in (DECODE, MIXED):
            return step
        checked = riding_time(cost_model, step, graph.batch * self.draft_tokens, 0)
        drafting = round(step.duration * self.draft_cost) * self.draft_tokens
        return StepTime(checked.duration + drafting, step.extrapolated)
