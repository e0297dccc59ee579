"""The list of runs as an address asks for it: filters, order, and a page found by the run that it begins after.

A page costs a constant number of queries, however many runs there are: ids come from the index that covers all
filters (models.Run.Meta), whole rows only for those that are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.utils import timezone

from webui.accounts.callers import Caller
from webui.runs import selectors
from webui.runs.models import Backend, Run
from webui.runs.states import Outcome, State

ROWS = 50
PERIODS: dict[str, tuple[timedelta, str]] = {
    "hour": (timedelta(hours=1), "last hour"),
    "day": (timedelta(days=1), "last 24 hours"),
    "week": (timedelta(days=7), "last 7 days"),
    "month": (timedelta(days=30), "last 30 days"),
}
FIDELITIES = ("faithful", "degraded", "invalid")
ORDERS: dict[str, tuple[str, bool, str]] = {
    "newest": ("created_at", True, "newest first"),
    "oldest": ("created_at", False, "oldest first"),
    "ended": ("finished_at", True, "ended last first"),
}
"""By name: the column (runs of the same moment by id), whether it falls, and what people call it."""
_CHOICES: dict[str, frozenset[str]] = {
    "state": frozenset({"active", *State}),
    "outcome": frozenset(Outcome),
    "fidelity": frozenset(FIDELITIES),
    "on": frozenset(Backend.values),
    "time": frozenset(PERIODS),
    "mine": frozenset({"1"}),
    "sort": frozenset(ORDERS) - {"newest"},
}
_WORDS = ("text", "experiment", "tag", "owner", "bench")
_LONGEST = 120


@dataclass(frozen=True)
class Asked:
    """What an address asks for."""

    filters: Mapping[str, str] = field(default_factory=dict)
    """As in the address, without empty ones and without values that mean nothing."""
    after: str = ""
    """A run's id: the page begins with the one that follows it."""
    before: str = ""
    """A run's id: the page ends with the one that comes before it."""

    @property
    def order(self) -> str:
        """A name of ORDERS."""
        return self.filters.get("sort", "newest")

    @property
    def narrows(self) -> bool:
        """Whether some runs are left out."""
        return bool(set(self.filters) - {"sort"})

    @property
    def query(self) -> str:
        """Filters and order as they stand in an address."""
        return urlencode(self.filters)


@dataclass(frozen=True)
class RunPage:
    """Some rows of the list, and where it goes on."""

    rows: list[Run]
    older: str
    """Id to go on after; empty at the end of the list."""
    newer: str
    """Id to go back before; empty at its beginning."""


def read_address(told: Mapping[str, str]) -> Asked:
    """What a query string asks for. What means nothing is left out, so an old link still opens a list."""
    filters = {name: told.get(name, "") for name, allowed in _CHOICES.items() if told.get(name) in allowed}
    for name in _WORDS:
        words = told.get(name, "").replace("\x00", "").strip()[:_LONGEST]
        if words:
            filters[name] = words
    return Asked(filters, told.get("after", "")[:40], told.get("before", "")[:40])


def run_page(*, caller: Caller, asked: Asked, rows: int = ROWS) -> RunPage:
    """The page of the list that `asked` asks for; from its beginning if the run that it names is not to be found."""
    column, falls, _ = ORDERS[asked.order]
    runs = _filtered(caller, asked)
    if column == "finished_at":
        runs = runs.exclude(finished_at=None)
    backwards = bool(asked.before) and not asked.after
    place = selectors.run_get(run_id=asked.before if backwards else asked.after, caller=caller)
    if place is None or getattr(place, column) is None:
        place, backwards = None, False
    falls = falls != backwards
    if place is not None:
        runs = runs.filter(_beyond(place, column, falls=falls))
    sign = "-" if falls else ""
    found = list(runs.order_by(f"{sign}{column}", f"{sign}id").values_list("pk", flat=True)[: rows + 1])
    more = len(found) > rows
    ids = found[:rows][::-1] if backwards else found[:rows]
    by_id = {run.pk: run for run in _rows(ids)}
    shown = [by_id[pk] for pk in ids if pk in by_id]
    first, last = (shown[0].pk, shown[-1].pk) if shown else ("", "")
    if backwards:
        return RunPage(shown, older=last, newer=first if more else "")
    return RunPage(shown, older=last if more else "", newer=first if place is not None else "")


def _rows(ids: list[str]) -> QuerySet[Run]:
    rows = Run.objects.filter(pk__in=ids).select_related("owner", "bench")
    return rows.defer("spec", "summary", "search", "overrides")


def _filtered(caller: Caller, asked: Asked) -> QuerySet[Run]:
    told = asked.filters
    period = PERIODS.get(told.get("time", ""))
    return selectors.run_list(
        caller=caller,
        state=told.get("state", ""),
        outcome=told.get("outcome", ""),
        fidelity=told.get("fidelity", ""),
        backend=told.get("on", ""),
        experiment=told.get("experiment", ""),
        tag=told.get("tag", "").lower(),
        bench=told.get("bench", ""),
        owner=caller.user if told.get("mine") else told.get("owner") or None,
        since=timezone.now() - period[0] if period else None,
        text=told.get("text", ""),
    )


def _beyond(run: Run, column: str, *, falls: bool) -> Q:
    """What comes after `run` in the order of `column`, and of ids where that is the same."""
    value, way = getattr(run, column), "lt" if falls else "gt"
    return Q(**{f"{column}__{way}": value}) | Q(**{column: value, f"id__{way}": run.pk})
