"""How busy and how balanced NICs and memories were, of one system's repeats (`testbed.experiment.agentic_figures`).

A share is of the true rate that the plan gives, over the time between the first storage transfer of a run and the
last; `loaded` ends when half of the agents have ended, for the tail of a closed loop says nothing of the bottleneck.
A share of several repeats is the mean of theirs, weighed alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from testbed.experiment.agentic_figures import ModelFigures, NicFigures, ResourceUse, SideUse, SnicFigures
from testbed.experiment.agentic_results import AgenticResults
from testbed.experiment.hop_bytes import modelled_ports
from testbed.metrics.agents import half_ended
from testbed.metrics.resource_use import WINDOWS, busy, kind_of, link_busy, max_over_avg
from testbed.units import SECOND, Nanoseconds

ENGINE_SIDES = ("pe", "de")
_OF_ENGINES = ("snic_rx", "snic_tx", "cnic_read", "cnic_write", "wire", "dram", "copy_engine", "cxl")
RESOURCES: dict[str, tuple[str, ...]] = {
    "pe": _OF_ENGINES,
    "de": _OF_ENGINES,
    "storage": ("snic_rx", "snic_tx"),
}
"""What is told of each side (paper, 1.7: the links of the bottleneck analysis; the last two are of what-ifs)."""


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of those there are; None of none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def span_of(trial: AgenticResults) -> tuple[Nanoseconds, Nanoseconds]:
    """From the first storage transfer to the last; nothing where there was none."""
    return trial.use.first or 0, trial.use.last


def loaded_span(trial: AgenticResults) -> tuple[Nanoseconds, Nanoseconds]:
    """The same up to the moment at which half of the agents had ended."""
    begin, end = span_of(trial)
    half = half_ended(trial.agents)
    return begin, end if half is None else max(begin, min(end, half))


def shares(trial: AgenticResults, names: Sequence[str], span: tuple[Nanoseconds, Nanoseconds]) -> list[float]:
    """The busy share of each of these resources that has a rate."""
    found = [busy(trial.use.resources.get(name), trial.facts.rates.get(name, 0), *span) for name in names]
    return [share for share in found if share is not None]


def snic_figures(trials: Sequence[AgenticResults]) -> SnicFigures | None:
    """Storage NICs; None where no storage transfer was logged."""
    if all(trial.use.first is None for trial in trials):
        return None
    balance = _balance(trials, "snic_rx")
    return SnicFigures(
        max_over_avg=balance.max_over_avg,
        excess=balance.excess,
        windows=balance.windows,
        ports=balance.ports,
        pe=_side(trials, "pe", "snic_rx"),
        de=_side(trials, "de", "snic_rx"),
        storage=_side(trials, "storage", "snic_tx"),
    )


def cnic_figures(trials: Sequence[AgenticResults]) -> NicFigures | None:
    """Compute NICs, by what their wires carried; None where nothing was."""
    return _balance(trials, "wire") if any(_carried(trial, "wire") for trial in trials) else None


def resource_figures(trials: Sequence[AgenticResults]) -> dict[str, dict[str, ResourceUse]] | None:
    """Every kind of resource on every side that has some; None where no transfer was logged."""
    if not any(trial.use.resources for trial in trials):
        return None
    return {side: {kind: _resource(trials, side, kind) for kind in kinds} for side, kinds in RESOURCES.items()}


def model_figures(trials: Sequence[AgenticResults]) -> ModelFigures | None:
    """Measured bytes against the hop model; None where it speaks of none of the trials."""
    worst: dict[str, tuple[float, str]] = {}
    spoken = False
    for trial in trials:
        if trial.facts.hop_model is None or not trial.use.resources:
            continue
        spoken = True
        for resource, size in modelled_ports(trial.facts.hop_model, trial.turns()).items():
            found = trial.use.resources.get(resource)
            _note(worst, kind_of(resource).partition("_")[0], found.bytes if found else 0, size, resource)
            if kind_of(resource) == "snic_rx":
                counted = _counted_bytes(trial, resource.rpartition(".")[0])
                if counted is not None:
                    _note(worst, "counted", counted, size, resource)
    if not spoken:
        return None
    snic, cnic = worst.get("snic"), max(worst.get("cnic"), worst.get("wire"), key=lambda one: one[0] if one else -1.0)
    far = max((one for one in (snic, cnic) if one), default=None)
    counted_worst = worst.get("counted")
    return ModelFigures(
        snic_percent=snic[0] if snic else None,
        cnic_percent=cnic[0] if cnic else None,
        counted_percent=counted_worst[0] if counted_worst else None,
        where=far[1] if far else "",
    )


def _note(worst: dict[str, tuple[float, str]], group: str, found: int, modelled: int, resource: str) -> None:
    off = round(100 * abs(found - modelled) / modelled, 6)
    worst[group] = max(worst.get(group, (-1.0, "")), (off, resource))


def _counted_bytes(trial: AgenticResults, port: str) -> int | None:
    readings = trial.use.links.get(port)
    return sum(one.bits_per_s * (one.end - one.begin) // (8 * SECOND) for one in readings) if readings else None


def _side(trials: Sequence[AgenticResults], side: str, kind: str) -> SideUse:
    def over(
        pick: Callable[[list[float]], float], span: Callable[[AgenticResults], tuple[Nanoseconds, Nanoseconds]]
    ) -> float | None:
        found = (shares(trial, trial.resources(side, kind), span(trial)) for trial in trials)
        return mean(pick(part) for part in found if part)

    return SideUse(
        busy=over(_average, span_of),
        busiest=over(max, span_of),
        loaded=over(_average, loaded_span),
        counted=mean(_counted(trial, side) for trial in trials),
        bytes=_bytes(trials, side, kind),
    )


def _counted(trial: AgenticResults, side: str) -> float | None:
    """Into the nodes of the side: what a switch sends to a port is what its kernel counts."""
    if side == "storage":
        return None
    ports = [name.rpartition(".")[0] for name in trial.resources(side, "snic_rx")]
    return mean(
        link_busy(trial.use.links[port], trial.use.settings[port], *span_of(trial))
        for port in ports
        if port in trial.use.links
    )


def _resource(trials: Sequence[AgenticResults], side: str, kind: str) -> ResourceUse:
    means, mosts, loaded = [], [], []
    for trial in trials:
        names = trial.resources(side, kind)
        found, early = shares(trial, names, span_of(trial)), shares(trial, names, loaded_span(trial))
        if found:
            means.append(_average(found))
            mosts.append(max(found))
        if early:
            loaded.append(max(early))
    return ResourceUse(mean(means), mean(mosts), mean(loaded), _bytes(trials, side, kind))


def _balance(trials: Sequence[AgenticResults], kind: str) -> NicFigures:
    ratios: dict[str, float | None] = {}
    windows: dict[str, int] = {}
    for words, window in WINDOWS.items():
        found = [
            max_over_avg(trial.use.resources, _engine_ports(trial, kind), window, *span_of(trial)) for trial in trials
        ]
        ratios[words] = mean(ratio for ratio, _ in found)
        windows[words] = sum(count for _, count in found)
    return NicFigures(
        max_over_avg=ratios,
        excess={words: None if ratio is None else ratio - 1 for words, ratio in ratios.items()},
        windows=windows,
        ports=max(len(_engine_ports(trial, kind)) for trial in trials),
    )


def _engine_ports(trial: AgenticResults, kind: str) -> list[str]:
    return [name for side in ENGINE_SIDES for name in trial.resources(side, kind)]


def _carried(trial: AgenticResults, kind: str) -> bool:
    return any(kind_of(name) == kind for name in trial.use.resources)


def _bytes(trials: Sequence[AgenticResults], side: str, kind: str) -> int:
    return sum(
        trial.use.resources[name].bytes
        for trial in trials
        for name in trial.resources(side, kind)
        if name in trial.use.resources
    )


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
