"""Who else reads a run: the owner or an admin says so, and it is spelled out by name. The rule itself: `access`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet

from webui.accounts.callers import Caller
from webui.accounts.models import User
from webui.accounts.roles import Role
from webui.accounts.selectors import admins_open, group_list
from webui.audit.deeds import Deed
from webui.audit.services import note
from webui.runs.access import may_change
from webui.runs.models import Run, Visibility

NAMES = 12
"""As many are spelled out; of more, how many."""


class ShareFault(Exception):
    """The run cannot be shared so; the sentence is for the person who asked."""


class Readers(NamedTuple):
    """Some who may read a run, and why."""

    who: str
    why: str


def share_groups(*, caller: Caller, run: Run) -> QuerySet[Group]:
    """The groups that `caller` may share `run` with: those they are in (an admin: all), and those it is shared with."""
    theirs = group_list(caller=caller)
    return Group.objects.filter(pk__in=[*theirs.values_list("pk", flat=True), *run.groups.values_list("pk", flat=True)])


@transaction.atomic
def run_share(*, run: Run, caller: Caller, visibility: str, groups: Iterable[int] = ()) -> bool:
    """Sets who reads the run from now on; live pages of others close within seconds. False if nothing changes.

    `groups` are ids, and count with GROUPS alone. Raises ShareFault.
    """
    if not may_change(caller, run):
        raise ShareFault("Only the run's owner or an admin may share it.")
    if visibility not in Visibility.values:
        raise ShareFault(f"visibility: {visibility[:20]!r}: one of {', '.join(Visibility.values)}")
    wanted: set[int] = set(groups) if visibility == Visibility.GROUPS else set()
    chosen = {group.pk: group for group in share_groups(caller=caller, run=run).filter(pk__in=wanted)}
    if visibility == Visibility.GROUPS and not wanted:
        raise ShareFault("Choose at least one group, or keep the run to yourself.")
    if wanted - set(chosen):
        raise ShareFault("One of these groups is not yours to share with.")
    present = set(run.groups.values_list("pk", flat=True))
    if run.visibility == visibility and present == wanted:
        return False
    before, run.visibility = run.visibility, visibility
    run.save(update_fields=["visibility"])
    run.groups.set(chosen.values())
    note(Deed.RUN_SHARE, run.pk, visibility=visibility, before=before, groups=[one.name for one in chosen.values()])
    return True


def run_readers(*, run: Run) -> list[Readers]:
    """Everybody who may read the run now, in words: the same people that `access.readable` lets in."""
    found = [Readers(run.owner.username if run.owner else "nobody: it was started in a shell", "owner")]
    if run.visibility == Visibility.EVERYONE:
        return [*found, Readers("everyone", "who is signed in")]
    if run.visibility == Visibility.GROUPS:
        found += [Readers(_names(group.user_set.all()), f"group {group.name}") for group in run.groups.order_by("name")]
    if run.owner is not None:
        theirs = User.objects.filter(groups__in=run.owner.groups.all(), role=Role.INSTRUCTOR).exclude(pk=run.owner.pk)
        if theirs.exists():
            found.append(Readers(_names(theirs.distinct()), "instructors of the owner's groups"))
    found.append(Readers(_names(admins_open()), "admins"))
    return found


def _names(people: QuerySet[User]) -> str:
    open_ones = people.filter(is_active=True).order_by("username")
    count = open_ones.count()
    names = list(open_ones.values_list("username", flat=True)[:NAMES])
    if count > NAMES:
        names.append(f"{count - NAMES} more")
    return ", ".join(names) or "nobody yet"
