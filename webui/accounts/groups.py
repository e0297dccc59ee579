"""What changes groups: admins make and remove them, instructors say who is in theirs."""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction

from webui.accounts.callers import Caller
from webui.accounts.models import User
from webui.accounts.roles import Right, Role
from webui.accounts.services import AccountError
from webui.audit.deeds import Deed
from webui.audit.services import note

LONGEST_NAME = 60


@transaction.atomic
def group_create(*, name: str) -> Group:
    """A group without members. Raises AccountError if the name is taken or no good."""
    group = Group(name=_good(name))
    _unless_taken(group)
    group.save()
    note(Deed.GROUP_CREATE, group.name)
    return group


@transaction.atomic
def group_rename(*, group: Group, name: str) -> None:
    """Another name; members and shared runs stay."""
    before, group.name = group.name, _good(name)
    if before == group.name:
        return
    _unless_taken(group)
    group.save(update_fields=["name"])
    note(Deed.GROUP_CHANGE, group.name, before=before)


@transaction.atomic
def group_remove(*, group: Group) -> None:
    """Its members stay people; runs that were shared with it are no longer."""
    note(Deed.GROUP_REMOVE, group.name, members=group.user_set.count())
    group.delete()


@transaction.atomic
def group_add(*, group: Group, user: User, caller: Caller | None = None) -> bool:
    """Takes somebody in; False if they were in. `caller` is who asks, None for the command line.

    An instructor reads the runs of the members, so only an admin takes in people who may do as much themselves.
    """
    if caller is not None and not caller.may(Right.ADMINISTER) and user.role in (Role.INSTRUCTOR, Role.ADMIN):
        raise AccountError(f"{user.username} is {user.role}; only an admin can add them.")
    if group.user_set.filter(pk=user.pk).exists():
        return False
    group.user_set.add(user)
    note(Deed.GROUP_CHANGE, group.name, added=user.username)
    return True


@transaction.atomic
def group_drop(*, group: Group, user: User) -> bool:
    """Takes somebody out, and with that out of everything shared with the group; False if they were not in."""
    if not group.user_set.filter(pk=user.pk).exists():
        return False
    group.user_set.remove(user)
    note(Deed.GROUP_CHANGE, group.name, removed=user.username)
    return True


def _good(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise AccountError(f"A group needs a name of 1 to {LONGEST_NAME} characters, such as the class it is.")
    return name


def _unless_taken(group: Group) -> None:
    try:
        group.full_clean()
    except ValidationError as fault:
        raise AccountError(f"group {group.name!r}: {' '.join(fault.messages)}") from None
