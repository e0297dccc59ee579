"""How many requests of a system came to what end, for its summary; warm-up included."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from testbed.metrics.requests import Exchange, count_requests


class RequestTotals(msgspec.Struct, frozen=True):
    """Every request of a system, warm-up included."""

    sent: int
    completed: int
    failed: int
    in_flight: int
    tokens_received: int
    errors: dict[str, int]
    """Why requests failed, and how many for each reason."""
    faults: tuple[str, ...]
    """Counter identities that do not hold."""


def request_totals(exchanges: Sequence[Exchange]) -> RequestTotals:
    """The counts of these exchanges."""
    counts = count_requests(exchanges)
    errors: dict[str, int] = {}
    for exchange in exchanges:
        if exchange.error:
            errors[exchange.error] = errors.get(exchange.error, 0) + 1
    return RequestTotals(
        counts.sent, counts.completed, counts.failed, counts.in_flight, counts.tokens_received,
        dict(sorted(errors.items())), counts.faults,
    )  # fmt: skip
