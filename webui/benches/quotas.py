"""What a person may have of the benches: the settings' QUOTA, and where an admin has said otherwise, that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from django.conf import settings

from webui.accounts.models import Quota


@dataclass(frozen=True)
class Limits:
    """As accounts.Quota has them, every one filled in."""

    queued_runs: int
    active_runs: int
    bench_minutes_per_day: int
    run_minutes: int
    lease_minutes: int


_NAMES = [one.name for one in fields(Limits)]


def limits_of(people: Iterable[int]) -> dict[int, Limits]:
    """By primary key of the person."""
    people = list(people)
    own = {row["user_id"]: row for row in Quota.objects.filter(user__in=people).values("user_id", *_NAMES)}
    return {person: _limits(own.get(person, {})) for person in people}


def limits_for(person: int | None) -> Limits:
    """Of one person; of a run that has no owner, the settings'."""
    return _limits({}) if person is None else limits_of([person])[person]


def _limits(row: dict[str, int | None]) -> Limits:
    told = {name: row.get(name) for name in _NAMES}
    return Limits(**{name: settings.QUOTA[name] if value is None else value for name, value in told.items()})
