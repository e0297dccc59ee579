"""The text of /metrics, by prometheus-client: a fresh collector at each scrape, over rows and tallies.

No process-wide registry, so no figure is one process's own: whoever answers a scrape says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webui.benches.models import Health
from webui.metering import durations, selectors
from webui.metering.counting import BEYOND, SUM, here
from webui.metering.durations import Histogram
from webui.metering.series import ALL, Series
from webui.runs.models import Backend
from webui.runs.states import Outcome, State


def exposition() -> bytes:
    """Everything, in Prometheus's text format."""
    here.flush()
    registry = CollectorRegistry()
    registry.register(_Rows())
    return generate_latest(registry)


class _Rows(Collector):
    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        yield from _runs()
        yield from _benches()
        yield from _messages()
        yield _gauge("looplane_stream_viewers", "Live pages open now.", float(selectors.viewers_now()))
        for series in ALL:
            yield _counted(series)

    def describe(self) -> list[Metric]:
        """Nothing: what is collected is known only from the rows."""
        return []


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _age(moment: datetime) -> float:
    return max((timezone.now() - moment).total_seconds(), 0.0)


def _runs() -> Iterator[Metric]:
    rows = selectors.runs_by_standing()
    now = GaugeMetricFamily("looplane_runs", "Runs that have not ended, by state and backend.", labels=["state", "on"])
    ended = CounterMetricFamily("looplane_runs_finished", "Runs that have ended.", labels=["outcome", "on"])
    for backend in Backend.values:
        for state in State:
            if state is not State.FINISHED:
                now.add_metric([state, backend], sum(row[3] for row in rows if row[0] == state and row[2] == backend))
        for outcome in Outcome:
            ended.add_metric([outcome, backend], sum(row[3] for row in rows if row[1] == outcome and row[2] == backend))
    yield now
    yield ended
    oldest = selectors.oldest_queued()
    about = "How long the run has waited that waits longest; 0 without one."
    yield _gauge("looplane_queue_oldest_seconds", about, 0.0 if oldest is None else _age(oldest))
    waits, lengths = durations.here.now()
    yield _histogram("looplane_run_queue_seconds", "Time in the queue of runs that have ended.", waits)
    yield _histogram("looplane_run_duration_seconds", "From the start of a run's workload to its end.", lengths)


def _histogram(name: str, about: str, by_backend: dict[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, about, labels=["on"])
    for backend, histogram in sorted(by_backend.items()):
        family.add_metric([backend], histogram.buckets(), sum_value=histogram.sum)
    return family


def _benches() -> Iterator[Metric]:
    rows = selectors.benches()
    health = GaugeMetricFamily("looplane_benches", "Benches by health.", labels=["health"])
    for kind in Health.values:
        health.add_metric([kind], sum(row[1] == kind for row in rows))
    yield health
    yield _gauge("looplane_benches_closed", "Benches that an admin has closed.", float(sum(not row[2] for row in rows)))
    yield _gauge("looplane_leases", "Benches that somebody holds.", float(selectors.leases_open()))
    heartbeat = GaugeMetricFamily(
        "looplane_worker_heartbeat_age_seconds", "Since a bench's worker was last heard of.", labels=["bench"]
    )
    for name, _, _, seen_at in rows:
        if seen_at is not None:
            heartbeat.add_metric([name], _age(seen_at))
    yield heartbeat


def _messages() -> Iterator[Metric]:
    standing = selectors.deliveries_by_standing()
    family = GaugeMetricFamily(
        "looplane_webhook_deliveries", "Messages of webhooks kept, by standing.", labels=["state"]
    )
    for state, many in standing.items():
        family.add_metric([state], many)
    yield family


def _counted(series: Series) -> Metric:
    if not series.bounds:
        counter = CounterMetricFamily(series.name, series.about, labels=series.labels)
        for labels, value in sorted(selectors.tallies(series.name)):
            counter.add_metric(labels, value)
        return counter
    family = HistogramMetricFamily(series.name, series.about, labels=series.labels)
    by_labels: dict[tuple[str, ...], dict[str, float]] = {}
    for labels, value in selectors.tallies(series.name):
        by_labels.setdefault(labels[:-1], {})[labels[-1]] = value
    for labels, parts in sorted(by_labels.items()):
        below, buckets = 0.0, []
        for bound in [*(f"{bound:g}" for bound in series.bounds), BEYOND]:
            below += parts.get(bound, 0.0)
            buckets.append((bound, below))
        family.add_metric(labels, buckets, sum_value=parts.get(SUM, 0.0))
    return family
