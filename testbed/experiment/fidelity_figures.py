"""The fidelity verdicts of several trials as one: of a whole run, and of one system's repeats.

A run is as good as its worst trial, which one disturbed repeat of one system decides. What an experiment is about may
be the arms of some systems only, so each system has its own verdict too. This file judges nothing:
`testbed.metrics.fidelity` does, trial by trial.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from testbed.metrics.fidelity import Fidelity, Threshold, Verdict, worst_of

FIDELITY_METRICS: dict[str, str] = {
    "fidelity.verdict": "faithful, degraded or invalid: the worst of the system's trials",
}
"""What can be expected of a system's verdict, with its meaning. It is a word, so no ratio is made of it."""


class SystemFidelity(msgspec.Struct, frozen=True):
    """May the figures of one system at one point of the sweep be trusted."""

    verdict: Verdict
    """The worst of its trials."""
    reasons: tuple[str, ...]
    """Of all its trials, each with the trial's label."""


def system_fidelity(trials: Sequence[tuple[str, Fidelity]]) -> SystemFidelity:
    """The verdict on one system's trials, which come with their labels."""
    return SystemFidelity(worst_of(found.verdict for _, found in trials), _labelled(trials))


def merge_fidelity(trials: Sequence[tuple[str, Fidelity]]) -> Fidelity:
    """The worst verdict, each threshold where it was worst, and all reasons; with several trials each names its own."""
    if len(trials) == 1:
        return trials[0][1]
    worst: dict[str, Threshold] = {}
    for threshold in (threshold for _, found in trials for threshold in found.thresholds):
        known = worst.get(threshold.name)
        if known is None or (threshold.measured or -1.0) > (known.measured or -1.0):
            worst[threshold.name] = threshold
    notes = dict.fromkeys(found.note for _, found in trials if found.note)
    verdict = worst_of(found.verdict for _, found in trials)
    return Fidelity(verdict, _labelled(trials), tuple(worst.values()), "; ".join(notes))


def _labelled(trials: Sequence[tuple[str, Fidelity]]) -> tuple[str, ...]:
    return tuple(f"{label}: {reason}" for label, found in trials for reason in found.reasons)
