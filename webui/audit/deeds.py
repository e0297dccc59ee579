"""What the audit log writes down: everything that changes what somebody else sees, has or may do."""

from __future__ import annotations

from enum import StrEnum


class Deed(StrEnum):
    """`noun.verb`. A deed that is not here is not written."""

    SIGN_IN = "session.open"
    SIGN_IN_REFUSED = "session.refuse"
    SIGN_OUT = "session.close"
    PASSWORD_CHOOSE = "password.choose"  # the name of a deed
    PASSWORD_RESET = "password.reset"
    USER_CREATE = "user.create"
    USER_CHANGE = "user.change"
    USER_CLOSE = "user.close"
    USER_OPEN = "user.open"
    GROUP_CREATE = "group.create"
    GROUP_CHANGE = "group.change"
    GROUP_REMOVE = "group.remove"
    TOKEN_CREATE = "token.create"
    TOKEN_REVOKE = "token.revoke"
    RUN_START = "run.start"
    RUN_CANCEL = "run.cancel"
    RUN_EXTEND = "run.extend"
    RUN_SHARE = "run.share"
    RUN_LOST = "run.lost"
    BENCH_OPEN = "bench.open"
    BENCH_CLOSE = "bench.close"
    BENCH_CHANGE = "bench.change"
    BENCH_HEALTH = "bench.health"
    LEASE_TAKE = "lease.take"
    LEASE_EXTEND = "lease.extend"
    LEASE_RELEASE = "lease.release"
    HOOK_CREATE = "hook.create"
    HOOK_CHANGE = "hook.change"
    HOOK_REMOVE = "hook.remove"
