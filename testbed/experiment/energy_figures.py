"""Energy in a summary: what the power model of `testbed.metrics.energy` gives for one system's repeats.

None where no device ran a graph, or nothing was completed. Repeats: joules added, times and tokens added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from testbed.metrics.energy import SAMPLE, EnergyState, drawn
from testbed.metrics.latency import tokens_of
from testbed.metrics.requests import Exchange
from testbed.units import MILLISECOND

ENERGY_METRICS: dict[str, str] = {
    "energy.mj_per_token": "modelled energy at the plug per output token of a completed request, mJ",
    "energy.avg_watts": "modelled mean power at the plug, W",
    "energy.gpu_watts": "the GPU's part of it",
    "energy.host_watts": "the host's CPUs' part of it, neighbours included",
    "energy.dpu_watts": "the DPU's part of it",
    "energy.rest_watts": "the part of memory, NIC, fans and board",
}
"""Metrics of energy, with their meaning."""
ALLOWED_ENERGY = "energy.{mj_per_token,avg_watts,gpu_watts,host_watts,dpu_watts,rest_watts}"
"""The same, folded together for people."""


class EnergyFigures(msgspec.Struct, frozen=True):
    """Modelled, not metered (docs/models/energy.md)."""

    mj_per_token: float | None
    """None where no request was completed."""
    avg_watts: float
    gpu_watts: float
    host_watts: float
    dpu_watts: float
    rest_watts: float
    seconds: float
    """First sending to last end, of all repeats together."""
    tokens: int
    samples: int


class EnergyResults(NamedTuple):
    """What is known of one trial."""

    usage: EnergyState
    exchanges: Sequence[Exchange]
    beside: bool
    """Whether the plan has neighbours."""


def energy_figures(trials: Sequence[EnergyResults]) -> EnergyFigures | None:
    """The figures of all trials together."""
    seconds, tokens, samples = 0.0, 0, 0
    parts: dict[str, float] = {}
    for trial in trials:
        ends = [exchange.ended for exchange in trial.exchanges if exchange.ended is not None]
        if not ends:
            continue
        begin = min(exchange.sent for exchange in trial.exchanges)
        found = drawn(trial.usage, begin, max(ends), beside=trial.beside)
        if found is None:
            continue
        seconds += found.seconds
        samples += found.samples
        tokens += sum(tokens_of(exchange) for exchange in trial.exchanges if exchange.completed)
        for part, joules in found.parts.items():
            parts[part] = parts.get(part, 0.0) + joules
    if not seconds:
        return None
    whole = sum(parts.values())
    watts = {part: joules / seconds for part, joules in parts.items()}
    return EnergyFigures(
        mj_per_token=1_000 * whole / tokens if tokens else None,
        avg_watts=whole / seconds,
        gpu_watts=watts["gpu"],
        host_watts=watts["host"],
        dpu_watts=watts["dpu"],
        rest_watts=watts["rest"],
        seconds=seconds,
        tokens=tokens,
        samples=samples,
    )


def energy_words(energy: EnergyFigures) -> str:
    """The figures in a line."""
    token = "-" if energy.mj_per_token is None else f"{energy.mj_per_token:,.0f}"
    parts = ", ".join(
        f"{name} {watts:,.0f}"
        for name, watts in (
            ("GPU", energy.gpu_watts), ("host", energy.host_watts), ("DPU", energy.dpu_watts),
            ("rest", energy.rest_watts),
        )
    )  # fmt: skip
    return (
        f"{token} mJ/token, {energy.avg_watts:,.0f} W at the plug ({parts}), modelled, {energy.samples:,} samples of "
        f"{SAMPLE / MILLISECOND:g} ms"
    )
