"""A run as two CSV files: a row for each request, and a row for each token.

Times are true milliseconds since the run's epoch with six digits, which is to the nanosecond. A text that a
spreadsheet would take for a formula gets a leading apostrophe, since names come from clients.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from testbed.metrics.latency import mean_gap, tokens_of
from testbed.metrics.requests import Exchange
from testbed.metrics.spans import RequestSpans, request_spans
from testbed.metrics.timeline import STEP_WORDS, TimelineState
from testbed.units import MILLISECOND

REQUEST_COLUMNS = (
    "trial", "name", "request", "ring", "slot", "state", "reason", "scheduled_ms", "sent_ms", "lag_ms", "prompt_tokens",
    "max_tokens", "tokens", "ttft_ms", "ttst_ms", "tpot_ms", "latency_ms",
    *(f"step_{step}_first_ms" for step in STEP_WORDS),
)  # fmt: skip
TOKEN_COLUMNS = ("trial", "name", "index", "published_ms", "received_ms", "gap_ms")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class CsvFiles(NamedTuple):
    """The two files' text."""

    requests: str
    tokens: str


def export_csv(timelines: Mapping[str, TimelineState]) -> CsvFiles:
    """The requests and tokens of one or more trials, by label."""
    requests: list[Sequence[Any]] = []
    tokens: list[Sequence[Any]] = []
    for label, timeline in timelines.items():
        exchanges = {exchange.name: exchange for exchange in timeline.exchanges.exchanges}
        for row in request_spans(timeline):
            exchange = exchanges.get(row.name)
            requests.append(_request(label, row, exchange))
            tokens.extend(_tokens(label, row, exchange))
    return CsvFiles(written(REQUEST_COLUMNS, requests), written(TOKEN_COLUMNS, tokens))


def _request(label: str, row: RequestSpans, exchange: Exchange | None) -> Sequence[Any]:
    steps = dict(row.steps)
    firsts = [as_ms(steps[step].first) if step in steps else "" for step in STEP_WORDS]
    head = [label, row.name, row.request, row.ring, row.slot, row.state, row.reason]
    if exchange is None:
        return [*head, "", as_ms(row.start), "", "", "", len(row.token_times), "", "", "", "", *firsts]
    times, gap = exchange.times, mean_gap(exchange) if exchange.completed else []
    return [
        *head,
        as_ms(exchange.scheduled), as_ms(exchange.sent), as_ms(exchange.lag), exchange.prompt_tokens,
        exchange.max_tokens,
        tokens_of(exchange),
        as_ms(times[0] - exchange.sent) if times else "",
        as_ms(times[1] - times[0]) if len(times) > 1 else "",
        as_ms(gap[0][0]) if gap else "",
        as_ms(times[-1] - exchange.sent) if times and exchange.completed else "",
        *firsts,
    ]  # fmt: skip


def _tokens(label: str, row: RequestSpans, exchange: Exchange | None) -> Iterable[Sequence[Any]]:
    received = (
        [t for t, count in zip(exchange.times, exchange.counts, strict=True) for _ in range(count)] if exchange else []
    )
    published = row.token_times if row.published else ()
    for index in range(max(len(published), len(received))):
        came = received[index] if index < len(received) else None
        gap = came - received[index - 1] if came is not None and index else None
        yield [
            label,
            row.name,
            index,
            as_ms(published[index] if index < len(published) else None),
            as_ms(came),
            as_ms(gap),
        ]


def as_ms(time: float | None) -> str:
    """A time to the nanosecond; nothing for none."""
    return "" if time is None else f"{time / MILLISECOND:.6f}"


def written(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS) and not _is_number(value):
        return f"'{value}"
    return "" if value is None else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
