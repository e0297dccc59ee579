"""The rows of a comparison: a side's facts and one figure across all sides. Plain data."""

from __future__ import annotations

import msgspec

from testbed.comparison.directions import Direction
from testbed.comparison.readings import Cell, Change

HEADLINES: tuple[str, ...] = (
    "ttft_ms.mean", "ttft_ms.p50", "ttft_ms.p99", "ttst_ms.mean", "tpot_ms.mean", "tpot_ms.p99", "itl_ms.p99",
    "throughput_tokens_per_s", "requests.completed", "requests.failed", "jct.total_s", "jct.in_objectives",
    "paths.hit_rate", "snic.max_over_avg.1s", "engines.pe.busy", "engines.de.busy", "energy.mj_per_token",
    "host.step_us.mean", "host.launch_gap_us.mean", "recovery.service_back_ms.mean", "isolation.bursts_us.p99",
)  # fmt: skip
"""What a person looks at first, in this order; a system has those that it has."""


class SideFacts(msgspec.Struct, frozen=True):
    """What is compared, for people."""

    letter: str
    """A to F."""
    run: str
    part: str
    """System and point, or trial, as an address writes it behind the run."""
    system: str
    point: str
    trial: str
    """Label of the single repeat that this is; empty where it is all of them."""
    repeats: int
    clock: str
    outcome: str
    """Of the run; empty while it has none."""
    detail: str
    fidelity: str
    """The worst verdict of its repeats; empty until judged."""
    reasons: tuple[str, ...]
    question: str
    title: str
    finished: bool
    fault: str = ""
    """Why its event logs cannot be read; its repeats are then pooled as in its summary."""


class FigureRow(msgspec.Struct, frozen=True):
    """One figure of all sides."""

    metric: str
    """Its path, as `[expect]` has it behind systems.NAME."""
    title: str
    unit: str
    direction: Direction
    reason: str
    """Why this direction is better, or why neither is."""
    headline: bool
    cells: tuple[Cell, ...]
    changes: tuple[Change | None, ...]
    """Of the first side: None."""
