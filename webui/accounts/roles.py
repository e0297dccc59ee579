"""Who may do what: one table. A person has one role; a token has scopes, which can only narrow its owner's role.

Pure; knows no database. What belongs to whom (owners, sharing) is asked of `webui.runs.access`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Role(StrEnum):
    """What a person is to this console, the least first."""

    VIEWER = "viewer"
    """Looks at what is shared with them."""
    RUNNER = "runner"
    """Starts runs, leases benches, shares what is theirs."""
    INSTRUCTOR = "instructor"
    """A runner who also sees the runs of the members of their groups, and says who is in them."""
    ADMIN = "admin"
    """Everything: users, benches, every run, the audit log."""


class Scope(StrEnum):
    """What a token may be used for. A session of the console has all three."""

    READ = "read"
    RUN = "run"
    ADMIN = "admin"


class Right(StrEnum):
    """One thing that may be allowed."""

    READ = "read"
    """Runs that are shared with them or their own, experiments, benches."""
    START = "start"
    """Make, cancel, extend, share and tag runs of one's own; webhooks."""
    LEASE = "lease"
    """Take a bench for a while."""
    SEE_MEMBERS = "see_members"
    """Read the runs of everybody in one's groups."""
    MANAGE_MEMBERS = "manage_members"
    """Add people to one's groups and take them out."""
    ADMINISTER = "administer"
    """Users, roles, quotas, benches, the audit log, and everybody's runs."""


_RUNNER = frozenset({Right.READ, Right.START, Right.LEASE})
_INSTRUCTOR = _RUNNER | {Right.SEE_MEMBERS, Right.MANAGE_MEMBERS}

BY_ROLE: dict[Role, frozenset[Right]] = {
    Role.VIEWER: frozenset({Right.READ}),
    Role.RUNNER: _RUNNER,
    Role.INSTRUCTOR: _INSTRUCTOR,
    Role.ADMIN: frozenset(Right),
}
BY_SCOPE: dict[Scope, frozenset[Right]] = {
    Scope.READ: frozenset({Right.READ, Right.SEE_MEMBERS}),
    Scope.RUN: frozenset({Right.READ, Right.START, Right.LEASE}),
    Scope.ADMIN: frozenset({Right.READ, Right.SEE_MEMBERS, Right.MANAGE_MEMBERS, Right.ADMINISTER}),
}


def rights(role: Role, scopes: Iterable[Scope] = tuple(Scope)) -> frozenset[Right]:
    """What a person of `role` may do through something that has `scopes`."""
    granted: set[Right] = set()
    for scope in scopes:
        granted |= BY_SCOPE[scope]
    return BY_ROLE[role] & granted
