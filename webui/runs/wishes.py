"""What may be asked along with a run: its bench, its time, who may read it. Checked here, before a row is made."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.utils import timezone

from webui.accounts.models import User
from webui.benches.needs import Ability, lacking, read_needs
from webui.benches.placement import unfit_words
from webui.benches.quotas import Limits
from webui.benches.refusals import BadRequest, NoBenchFits, QuotaFull
from webui.benches.situation import bench_places, needs_of
from webui.runs.models import Backend, Run, Visibility
from webui.runs.states import State

LEAST_S = 10
"""The shortest time limit: below it no run gets beyond its preparation."""


@dataclass(frozen=True)
class Wishes:
    """Beside the spec itself; what is left out is the console's to choose."""

    needs: tuple[str, ...] = ()
    """Tags and abilities of the bench (webui.benches.needs); what the spec itself needs is added."""
    time_limit_s: int | None = None
    """Wall seconds from the claim until it is asked to end; None takes the owner's quota."""
    visibility: Visibility = Visibility.PRIVATE
    groups: tuple[Group, ...] = ()
    """Who else reads it where visibility is GROUPS; groups that the owner is in."""
    tags: tuple[str, ...] = ()
    """As webui.runs.tags.read_tags gives them."""
    clone_of: Run | None = None
    """A run that the owner may read."""

    def told(self) -> list[object]:
        """For the digest of a request: everything that makes it another request."""
        groups = sorted(group.pk for group in self.groups)
        clone = self.clone_of.pk if self.clone_of else None
        return [list(self.needs), self.time_limit_s, self.visibility, groups, list(self.tags), clone]


NONE = Wishes()


def wishes_check(
    *, wishes: Wishes, owner: User, limits: Limits, backend: Backend, of_spec: tuple[str, ...]
) -> list[str]:
    """The run's needs beyond those of its backend. Raises BadRequest, QuotaFull, NoBenchFits."""
    try:
        asked = read_needs(wishes.needs)
    except ValueError as fault:
        raise BadRequest(str(fault), path="needs") from None
    longest = limits.run_minutes * 60
    if wishes.time_limit_s is not None and not LEAST_S <= wishes.time_limit_s <= longest:
        raise BadRequest(
            f"time_limit_s {wishes.time_limit_s}: {LEAST_S} to {longest} ({limits.run_minutes} min is your quota)",
            path="time_limit_s",
        )
    mine = set(owner.groups.values_list("pk", flat=True))
    for group in wishes.groups:
        if group.pk not in mine:
            raise BadRequest(f"groups: {group.name!r} is none of your groups", path="groups")
    if wishes.visibility == Visibility.GROUPS and not wishes.groups:
        raise BadRequest("groups: a run for groups names at least one", path="groups")
    queued = Run.objects.filter(owner=owner, state=State.QUEUED).count()
    if queued >= limits.queued_runs:
        raise QuotaFull(
            f"{queued} of your runs are waiting already, as many as you may have; try again when one has started"
        )
    needs = list(dict.fromkeys([*asked, *(of_spec if backend == Backend.MININET else ())]))
    _check_fits(needs_of(backend=backend, needs=needs))
    return needs


def _check_fits(needs: tuple[str, ...]) -> None:
    places = bench_places(now=timezone.now())
    known = all(Ability.EMULATE in place.offer.abilities for place in places)  # or its probes are not done yet
    if places and known and all(lacking(needs, place.offer) for place in places):
        raise NoBenchFits(f"no bench can take this run: {unfit_words(needs, places)}", path="needs")
