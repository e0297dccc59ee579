"""How an experiment names a metric: systems.NAME.METRIC, fidelity.verdict, and ratio(METRIC, METRIC).

`METRICS` and `WORDS` are the one list of what can be expected of a system; `testbed.experiment.expectations` finds the
value of each in a run's summary, where it stands under the same path. This file knows names, not values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import NamedTuple, TypeAlias

from testbed.experiment.agentic_metrics import AGENTIC_METRICS
from testbed.experiment.agentic_metrics import ALLOWED as ALLOWED_AGENTIC
from testbed.experiment.energy_figures import ALLOWED_ENERGY, ENERGY_METRICS
from testbed.experiment.fidelity_figures import FIDELITY_METRICS
from testbed.experiment.host_figures import ALLOWED_HOST, HOST_METRICS, NEIGHBOUR_METRICS
from testbed.experiment.prefix_figures import ALLOWED_PREFIX, PREFIX_METRICS
from testbed.experiment.recovery_figures import ALLOWED_RECOVERY, RECOVERY_METRICS

_LATENCIES = {
    "ttft_ms": "time to first token",
    "ttst_ms": "time from first to second token",
    "itl_ms": "time between neighbouring chunks",
    "tpot_ms": "time per output token after the first",
    "submit_to_claim_ms": "time from a prompt in GPU memory to the scheduler's claim",
    "publish_to_client_ms": "time from a token in the ring to its client",
}
_STATISTICS = {
    "n": "how many values",
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "p999": "99.9th percentile",
    "worst": "largest value",
}

METRICS: dict[str, str] = {
    **{
        f"{latency}.{statistic}": f"{words}: {meaning}"
        for latency, meaning in _LATENCIES.items()
        for statistic, words in _STATISTICS.items()
    },
    "requests.sent": "requests that the clients sent",
    "requests.completed": "requests whose whole answer arrived",
    "requests.failed": "requests that were refused or broke off",
    "throughput_tokens_per_s": "output tokens received per true second",
    **ENERGY_METRICS,
    **HOST_METRICS,
    **RECOVERY_METRICS,
    **PREFIX_METRICS,
    **AGENTIC_METRICS,
}
"""Every metric of a system, with its meaning. Latencies are in true milliseconds by the definitions of vLLM's bench."""

WORDS: dict[str, str] = {**FIDELITY_METRICS}
"""Metrics of a system whose value is a word: no ratio is made of them, and nothing is counted with them."""

RUN_METRICS: dict[str, str] = {"fidelity.verdict": "faithful, degraded or invalid"}
"""Metrics of the run itself."""

ALLOWED = (
    f"{{{','.join(_LATENCIES)}}}.{{{','.join(_STATISTICS)}}}, "
    f"requests.{{sent,completed,failed}}, throughput_tokens_per_s, {ALLOWED_ENERGY}, {ALLOWED_HOST}, "
    f"{ALLOWED_RECOVERY}, {ALLOWED_PREFIX}, {', '.join(WORDS)}, "
    f"{ALLOWED_AGENTIC}"
)
"""The names of `METRICS` and `WORDS`, folded together for people."""

_RATIO = re.compile(r"\s*ratio\s*\(([^(),]*),([^(),]*)\)\s*", re.ASCII)


class Metric(NamedTuple):
    """One metric of one system, or of the run (`system` is then empty)."""

    system: str
    name: str

    def __str__(self) -> str:
        return f"systems.{self.system}.{self.name}" if self.system else self.name

    @property
    def is_word(self) -> bool:
        """Whether its value is a word, as faithful, and no figure."""
        return self.name in (WORDS if self.system else RUN_METRICS)


class Ratio(NamedTuple):
    """One metric divided by another."""

    over: Metric
    under: Metric

    def __str__(self) -> str:
        return f"ratio({self.over}, {self.under})"


MetricPath: TypeAlias = Metric | Ratio


class UnknownMetric(ValueError):
    """A text that names no metric. `allowed` says what would."""

    def __init__(self, text: str, allowed: str) -> None:
        self.text = text
        self.allowed = allowed
        super().__init__(f"{text!r} is no metric; {allowed}")


def parse_metric_path(text: str, systems: Collection[str]) -> MetricPath:
    """The metric that `text` names, in an experiment with these systems. Raises `UnknownMetric`."""
    ratio = _RATIO.fullmatch(text)
    if ratio:
        over, under = (_metric(part.strip(), systems) for part in ratio.groups())
        if "" in (over.system, under.system):
            raise UnknownMetric(text, "a ratio is of two metrics of systems")
        for part in (over, under):
            if part.is_word:
                raise UnknownMetric(text, f"a ratio is of two figures, and {part.name} is a word")
        return Ratio(over, under)
    return _metric(text.strip(), systems)


def _metric(text: str, systems: Collection[str]) -> Metric:
    if text in RUN_METRICS:
        return Metric("", text)
    head, _, rest = text.partition(".")
    system, _, name = rest.partition(".")
    if head != "systems" or not rest:
        forms = f"systems.NAME.METRIC, {', '.join(RUN_METRICS)} or ratio(METRIC, METRIC)"
        raise UnknownMetric(text, f"allowed: {forms}")
    if system not in systems:
        raise UnknownMetric(text, f"no system {system!r}; {_guess(system, systems)}allowed: {', '.join(systems)}")
    if name not in METRICS and name not in WORDS and not _of_a_neighbour(name):
        raise UnknownMetric(text, f"a system has no metric {name!r}; {_guess(name, METRICS)}allowed: {ALLOWED}")
    return Metric(system, name)


def _of_a_neighbour(name: str) -> bool:
    """Whether it is neighbours.NAME.METRIC; a neighbour that the system has not, has no value."""
    head, _, rest = name.partition(".")
    return head == "neighbours" and rest.rpartition(".")[0] != "" and rest.rpartition(".")[2] in NEIGHBOUR_METRICS


def _guess(wrong: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(wrong, list(names), n=1, cutoff=0.6)
    return f"did you mean {close[0]}? " if close else ""
