"""What is counted where it happens, and how it is called. Everything else is counted from rows (metering.exposition).

Names follow Prometheus's conventions: base units, `_total` for counters, no label whose values a stranger chooses.
Pure.
"""

from __future__ import annotations

from typing import NamedTuple


class Series(NamedTuple):
    """A counter, or a histogram where it has bounds."""

    name: str
    about: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()


REQUESTS = Series(
    "looplane_http_requests_total",
    "Answers of the web process, by route and status.",
    ("method", "route", "status"),
)
REQUEST_SECONDS = Series(
    "looplane_http_request_duration_seconds",
    "From a request to its answer's head; long polls wait on purpose.",
    ("route",),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
STREAM_LAG_SECONDS = Series(
    "looplane_stream_lag_seconds",
    "From the last write to a run's log to the moment its lines are handed to a viewer's socket.",
    (),
    (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0),
)
ALL = (REQUESTS, REQUEST_SECONDS, STREAM_LAG_SECONDS)
