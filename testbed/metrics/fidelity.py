"""The fidelity verdict: may this run's figures be trusted, by measured numbers against a printed table.

`faithful`: every threshold holds. `degraded`: some are crossed, with reasons; latencies are then upper bounds.
`invalid`: one is crossed so far that the figures say something about the bench and not about the system (a busy
host gives `invalid: …`, never a failed experiment: fault C17). Under the simulated clock time is modelled, so only
the log itself is judged, and the note says so.

A log must be whole: `run.started` names the planned nodes, and each has logged `node.ready` and `node.stopped`. A
node without its beginning makes the run `invalid` (any figure may rest on it), one without its end `degraded`. A log
of before `run.started` named nodes is not asked.

The limits and their reasons are `testbed.metrics.thresholds` (docs/models/fidelity.md shows them). All is folded from
events; a reading that a wall-clock run should have and has not is itself a reason for `degraded`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

import msgspec

from testbed.events.log import Record
from testbed.events.schema import AnyEvent
from testbed.machine import Event
from testbed.metrics.fidelity_readings import FidelityState, take
from testbed.metrics.lateness import late_estimate
from testbed.metrics.thresholds import BUSY_HOST, THRESHOLDS, Limit
from testbed.units import MILLISECOND

Verdict = Literal["faithful", "degraded", "invalid"]
VERDICTS: tuple[Verdict, ...] = ("faithful", "degraded", "invalid")
"""From the best to the worst."""
SIMULATED_NOTE = "simulated clock: modelled time"
FEWEST_WAKES = 100
"""A p99 of fewer would be the worst wake under another name (see `testbed.metrics.latency.PERCENTILES`)."""
UNTIMED_ROLES = ("host",)
"""Roles that leave the path after provisioning: their clock is nobody's latency."""


class Threshold(msgspec.Struct, frozen=True):
    """One limit against what was measured."""

    name: str
    measured: float | None
    limit: float
    invalid_limit: float
    unit: str
    held: bool | None
    """None where there was nothing to measure."""
    where: str
    """The worst node or port."""
    reason: str
    """Why the limit stands there."""


class Fidelity(msgspec.Struct, frozen=True):
    """The verdict and everything it rests on."""

    verdict: Verdict
    reasons: tuple[str, ...]
    thresholds: tuple[Threshold, ...]
    note: str = ""


class FidelityFold:
    """Gathers a run's readings about itself and judges them."""

    state = FidelityState
    takes: frozenset[type[Event]] = frozenset(get_args(AnyEvent))
    """Every event, because any may be the one after a gap in the log."""

    def start(self) -> FidelityState:
        """Nothing measured."""
        return FidelityState()

    def step(self, state: FidelityState, record: Record) -> FidelityState:
        """Takes one reading. What was measured before the epoch (t < 0) is set-up and does not count."""
        take(state, record)
        return state

    def result(self, state: FidelityState) -> Fidelity:
        """The verdict on what was measured so far."""
        simulated = state.clock == "simulated"
        names = ("log gaps",) if simulated else tuple(THRESHOLDS)
        thresholds = tuple(_judge(THRESHOLDS[name], MEASURES[name](state)) for name in names)
        headless, endless = _incomplete(state)
        unmeasured = () if simulated else _missing(state, thresholds)
        reasons = (*headless, *endless, *_crossed(thresholds), *_undilated(state), *unmeasured)
        crossed_far = any(t.measured is not None and t.measured > t.invalid_limit for t in thresholds)
        verdict: Verdict = "invalid" if headless or crossed_far else "degraded" if reasons else "faithful"
        return Fidelity(verdict, reasons, thresholds, SIMULATED_NOTE if simulated else _note(state))


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict, `faithful` if there is none."""
    return max(verdicts, key=VERDICTS.index, default="faithful")


Measured = tuple[float | None, str]
"""The worst value, and where it was measured."""


def _lateness(state: FidelityState) -> Measured:
    late = {node: readings for node, readings in state.late.items() if _timed(state, node)}
    own = {node: readings for node, readings in late.items() if _wakes(readings) >= FEWEST_WAKES}
    rest = [reading for node, readings in late.items() if node not in own for reading in readings]
    if _wakes(rest) >= FEWEST_WAKES or (rest and not own):
        own["nodes with few wakes"] = rest
    return _worst({node: late_estimate(readings) / MILLISECOND / state.dilation for node, readings in own.items()})


def _wakes(readings: Sequence[tuple[int, int, int, int]]) -> int:
    return sum(wakes for wakes, *_ in readings)


def _send_lag(state: FidelityState) -> Measured:
    lags = sorted(state.lags)
    if not lags:
        return None, ""
    # The observed value: interpolation would hide the one late send of a short run.
    return lags[-(-99 * len(lags) // 100) - 1] / MILLISECOND, ""


def _waits(state: FidelityState) -> Measured:
    """The share of wall time in which a process waited for a CPU; on cores of the host that is what is measured."""
    return _worst({
        process: 100.0 * waited / max(1, state.watched[process])
        for process, waited in state.waited.items()
        if _process_timed(state, process)
    })  # fmt: skip


def _others(state: FidelityState) -> Measured:
    """The share of the machine's CPU time that nobody of the run had, where that disturbs what is measured."""
    if not state.had or not (state.host_works or state.displaced or _slowed_silicon(state)):
        return None, ""
    return max(0.0, 100.0 * (state.busy - state.ours) / state.had), ""


def _slowed_silicon(state: FidelityState) -> list[str]:
    """What stands for silicon of its own and does not go first."""
    return [process for process in state.not_first if _process_timed(state, process)]


def _stopped(state: FidelityState) -> Measured:
    return _worst({
        process: 100.0 * stopped / max(1, state.looks[process])
        for process, stopped in state.stopped_looks.items()
        if _process_timed(state, process) and process.removeprefix("node ") not in state.struck
    })  # fmt: skip


def _process_timed(state: FidelityState, process: str) -> bool:
    kind, _, node = process.partition(" ")
    return kind == "nic" or _timed(state, node)


def _timed(state: FidelityState, log: str) -> bool:
    """Whether the node that writes `log` must keep time; a node of several processes has logs like host0-core."""
    node = next((known for known in state.nodes if log == known or log.startswith(f"{known}-")), log)
    return state.nodes.get(node) not in UNTIMED_ROLES and node not in state.displaced


def _lost_frames(state: FidelityState) -> Measured:
    """Nothing before every NIC has counted for the last time: until then frames are under way, and not lost."""
    not_ours = state.part_real or state.part_killed
    if not state.sent or not_ours or any(f"{rnic}-nic" not in state.stopped for rnic in state.sent):
        return None, ""
    return float(abs(sum(state.sent.values()) - sum(state.received.values()))), "all NICs"


def _per_million(counts: dict[str, int], of: dict[str, int]) -> Measured:
    return _worst({key: 1e6 * count / of[key] if of[key] else 0.0 for key, count in counts.items()})


def _worst(values: dict[str, float]) -> Measured:
    if not values:
        return None, ""
    where = max(sorted(values), key=lambda key: values[key])
    return values[where], where


MEASURES: dict[str, Callable[[FidelityState], Measured]] = {
    "lateness p99": _lateness,
    "run-queue wait": _waits,
    "other processes": _others,
    "stopped": _stopped,
    "link over its setting": lambda state: _worst(state.link_excess),
    "drops": lambda state: _per_million(state.drops, state.packets),
    "resent packets": lambda state: (None, "") if state.part_killed else _per_million(state.resent, state.sent),
    "sequence errors": lambda state: _per_million(state.sequence_errors, state.received),
    "lost frames": _lost_frames,
    "ICRC errors": lambda state: _worst({key: float(count) for key, count in state.icrc_errors.items()}),
    "send lag p99": _send_lag,
    "host changes": lambda state: (float(len(state.changes)), "; ".join(state.changes)),
    "capture losses": lambda state: _worst({k: float(v) for k, v in state.missed_frames.items()}),
    "capture drift": lambda state: _worst({k: v / MILLISECOND for k, v in state.drift.items()}),
    "log gaps": lambda state: _worst({node: float(state.gaps.get(node, 0)) for node in state.next_seq}),
}
"""How each row of `THRESHOLDS` is measured."""


def _judge(limit: Limit, measured: Measured) -> Threshold:
    value, where = measured
    return Threshold(
        name=limit.name,
        measured=None if value is None else round(value, 3),
        limit=limit.faithful,
        invalid_limit=limit.invalid,
        unit=limit.unit,
        held=None if value is None else value <= limit.faithful,
        where=where if value else "",
        reason=limit.reason,
    )


def _crossed(thresholds: Sequence[Threshold]) -> list[str]:
    reasons = []
    for threshold in thresholds:
        if threshold.held is False:
            where = f" of {threshold.where}" if threshold.where else ""
            busy = "host busy: " if threshold.name in BUSY_HOST else ""
            reasons.append(
                f"{busy}{threshold.name}{where} {threshold.measured:g} {threshold.unit}, limit {threshold.limit:g}"
            )
    return reasons


def _incomplete(state: FidelityState) -> tuple[list[str], list[str]]:
    """What the log lacks of the planned nodes: their beginning, and the end of those that have a beginning."""
    headless = [
        f"incomplete log: no {'node.ready' if node in state.next_seq else 'events'} of {node}"
        for node in state.planned
        if node not in state.nodes
    ]
    endless = [
        f"incomplete log: no node.stopped of {node}"
        for node in state.planned
        if node in state.nodes and node not in state.stopped
    ]
    nics = [f"{node}-nic" for node in state.planned if f"{node}-nic" in state.next_seq]
    endless += [f"incomplete log: no node.stopped of {nic}" for nic in nics if nic not in state.stopped]
    return headless, endless


def _undilated(state: FidelityState) -> list[str]:
    """A device's wire takes its own time whatever the dilation; soft RNICs pace what a real port carries."""
    if not state.real_rnics or state.dilation == 1:
        return []
    nodes = ", ".join(state.real_rnics)
    return [f"the wire of {nodes} is a real RNIC's, {state.dilation:g} times too fast at this dilation"]


def _missing(state: FidelityState, thresholds: Sequence[Threshold]) -> list[str]:
    """What a wall-clock run should have measured and has not."""
    timed = [node for node in sorted(state.nodes) if _timed(state, node)]
    silent = [node for node in timed if node not in state.late]
    reasons = [f"no lateness reading of {', '.join(silent)}"] if silent else []
    excused = {"lateness p99"} if silent else set()
    if state.waits_unknown:
        excused.add("run-queue wait")
    reasons.extend(
        f"no reading of {threshold.name}"
        for threshold in thresholds
        if threshold.measured is None and THRESHOLDS[threshold.name].needed and threshold.name not in excused
    )
    return reasons


def _note(state: FidelityState) -> str:
    notes = []
    if state.real_parts:
        notes.append(f"real parts: {', '.join(state.real_parts)}")
    if state.waits_unknown:
        notes.append("this kernel keeps no account of waits for a CPU, so they were not judged")
    if state.displaced:
        notes.append(f"on cores of the host, so not asked to keep time: {', '.join(state.displaced)}")
    if slowed := _slowed_silicon(state):
        notes.append(f"without SCHED_FIFO, so who else ran was judged: {', '.join(slowed)}")
    if state.late_wakes:
        notes.append(f"{state.late_wakes} wakes were logged as late")
    return "; ".join(notes)
