"""Whose runs are whose: the one place that says who may read a run and who may change it.

A run that a caller may not read does not exist for them: pages, API, sockets, exports and lists all answer as for an
id that was never given (404), so nothing of another's can be guessed.
"""

from __future__ import annotations

from django.db.models import Case, CharField, Exists, F, OuterRef, Q, QuerySet, When

from webui.accounts.callers import Caller
from webui.accounts.roles import Right
from webui.runs.models import Origin, Run, Visibility


def readable(caller: Caller) -> Q:
    """The condition on runs that `caller` may read."""
    if not caller.may(Right.READ):
        return Q(pk__in=[])
    if caller.may(Right.ADMINISTER):
        return Q()
    groups = list(caller.user.groups.values_list("pk", flat=True))
    mine = Q(owner=caller.user) | Q(visibility=Visibility.EVERYONE)
    if groups:
        shared = Run.groups.through.objects.filter(group_id__in=groups).values("run_id")
        mine |= Q(visibility=Visibility.GROUPS, pk__in=shared)
        if caller.may(Right.SEE_MEMBERS):
            members = caller.user.__class__.objects.filter(groups__in=groups).values("pk")
            mine |= Q(owner__in=members)
    return mine


def runs_readable(caller: Caller) -> QuerySet[Run]:
    """All runs that `caller` may read, with their owners.

    `clone_told` of each is the run that it was made from, if that one is theirs to read too.
    """
    theirs = readable(caller)
    origin = Exists(Run.objects.filter(theirs, pk=OuterRef("clone_of")))
    told = Case(When(origin, then=F("clone_of_id")), output_field=CharField(null=True))
    return Run.objects.filter(theirs).select_related("owner").annotate(clone_told=told)


def may_change(caller: Caller, run: Run) -> bool:
    """Cancel, extend, share, tag: the owner, or an admin; never a viewer, nor a token without the scope `run`."""
    return caller.may(Right.START) and (caller.may(Right.ADMINISTER) or run.owner_id == caller.user.pk)


def may_cancel(caller: Caller, run: Run) -> bool:
    """As may_change; a run of the command line is stopped where it was started."""
    return run.origin == Origin.CONSOLE and may_change(caller, run)
