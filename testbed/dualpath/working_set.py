"""How much KV is alive at once, and what a stretch of the agents' time does to it (DualPath 8.2, design 1.13).

Little's law: agents that arrive at rate lambda and live for T are lambda × T at a time, and an agent's KV grows from
nothing to its whole length, so half of it is held on average. Exact rationals; knows no machine and no clock.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


def working_set(agents_per_s: Fraction, agent_s: Fraction, total_tokens: int, token_bytes: int) -> Fraction:
    """Bytes of KV of all agents alive: lambda × T × total / 2 tokens."""
    return agents_per_s * agent_s * Fraction(total_tokens, 2) * token_bytes


class Stretch(NamedTuple):
    """Factors by which a stretch of the agents' time multiplies things."""

    capacity: Fraction
    """Agents a second that the same machines sustain: an agent asks for less a second."""
    working_set: Fraction
    """KV alive: that many more agents, each for that much longer."""
    experiment: Fraction
    """What running such an experiment costs: machine hours × storage. The paper gives it as the reason for not
    running one; it is no cost of the deployment (correction 4)."""


def stretched(factor: Fraction) -> Stretch:
    """Gaps between turns (tools, people) make an agent live `factor` times as long: r, r² and r³."""
    return Stretch(factor, factor**2, factor**3)
