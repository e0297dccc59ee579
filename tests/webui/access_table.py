"""Who may have what: one row for every address, method by method. A route without a row fails test_access.py.

How to add a row: `"POST things/<thing_id>": Row(STARTERS)`, the key as the failing test prints it. `ok` names who gets
an answer; everybody else signed in is refused with one of `refused`, a stranger is sent to the door (pages) or gets 401
(API). `Row(READERS)` and `Row(CHANGERS)` are for addresses of one run: they are asked for a private run, one shared
with a group and one shared with everyone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SESSIONS = frozenset({"viewer", "runner", "instructor", "teacher", "admin", "owner", "member"})
TOKENS = frozenset(
    {"owner-read", "owner-run", "owner-admin", "admin-read", "admin-run", "admin-admin", "viewer-run", "expired"}
)
STRANGERS = frozenset({"stranger", "expired"})
"""Nobody, and somebody with a token that has run out."""
SIGNED = (SESSIONS | TOKENS) - STRANGERS
EVERYBODY = SIGNED | STRANGERS
STARTERS = frozenset({"runner", "instructor", "teacher", "admin", "owner", "owner-run", "admin-run"})
"""Right.START: not viewers, and no token without the scope."""
ADMINS = frozenset({"admin", "admin-admin"})
MANAGERS = frozenset({"admin", "admin-admin", "teacher"})
"""Who may say who is in the owner's group: admins and the instructor in it."""
OWNERS_GROUP = MANAGERS | {"owner", "owner-read", "owner-run", "owner-admin"}
"""Who knows that the owner's group exists."""
OWNER = frozenset({"owner", "owner-read", "owner-run", "owner-admin"})
OWNER_STARTS = frozenset({"owner", "owner-run"})
READERS, CHANGERS = "readers", "changers"

READS_RUN: dict[str, frozenset[str]] = {
    "private": OWNER | ADMINS | {"teacher"},
    "grouped": OWNER | ADMINS | {"teacher", "member"},
    "open": SIGNED,
}
"""By how it is shared: a grouped run is shared with the member's group, the teacher instructs the owner's."""
CHANGES_RUN = OWNER_STARTS | {"admin"}
"""And of those the ones who read it. An admin's token needs the scopes `run` and `admin` together."""


@dataclass(frozen=True)
class Row:
    """One method of one address."""

    ok: frozenset[str] | str
    refused: tuple[int, ...] = (403,)
    body: dict[str, Any] | None = None
    query: str = ""
    words: dict[str, Any] = field(default_factory=dict)
    """Path arguments that are others than usual (access_world.World.words)."""
    stranger: int | None = None
    """The status for a stranger, where it is neither the door nor 401."""

    is_slow: bool = False
    """A good answer takes a tenth of a second or more: fewer of those who may have it ask for it."""

    def asked(self, pattern: str) -> str:
        """The address with its question."""
        return f"{pattern}?{self.query}" if self.query else pattern


RUN = Row(READERS)
CHANGE = Row(CHANGERS)
ADMIN = Row(ADMINS)
OWNERS_LEASE = frozenset({"owner", "admin"})
BENCH = {"name": "bench-1"}
SPEC = {"experiment": "blink/small"}

PAGES: dict[str, Row] = {
    "GET ": Row(SIGNED, is_slow=True),
    "GET healthz": Row(EVERYBODY),
    "GET login": Row(EVERYBODY),
    "POST login": Row(EVERYBODY),
    "POST logout": Row(SIGNED, stranger=302),
    # --- one's own account
    "GET account": Row(SIGNED),
    "GET account/password": Row(SIGNED),
    "POST account/password": Row(SIGNED),
    "POST account/sessions/<slug:number>/end": Row(SIGNED),
    "GET account/tokens": Row(SIGNED),
    "POST account/tokens": Row(SIGNED),
    "POST account/tokens/<int:token_id>/revoke": Row(SIGNED),
    # --- other people
    "GET people": ADMIN,
    "POST people": ADMIN,
    "GET people/<str:name>": ADMIN,
    "POST people/<str:name>": ADMIN,
    "POST people/<str:name>/quota": ADMIN,
    "POST people/<str:name>/password": ADMIN,
    "POST people/<str:name>/sessions": ADMIN,
    "POST people/<str:name>/tokens/<int:token_id>": ADMIN,
    "POST people/<str:name>/close": ADMIN,
    "GET groups": Row(SIGNED),
    "POST groups": Row(ADMINS, body={"name": "another"}),
    "GET groups/<int:group_id>": Row(OWNERS_GROUP, refused=(404,)),
    "POST groups/<int:group_id>": Row(MANAGERS, refused=(403, 404), body={"name": "viewer"}),
    "POST groups/<int:group_id>/rename": Row(ADMINS, body={"name": "renamed"}),
    "POST groups/<int:group_id>/remove": ADMIN,
    "POST groups/<int:group_id>/members/<str:name>/drop": Row(MANAGERS, refused=(403, 404)),
    "GET audit": ADMIN,
    "GET audit.csv": ADMIN,
    # --- webhooks
    "GET account/webhooks": Row(STARTERS),
    "POST account/webhooks": Row(STARTERS),
    "GET account/webhooks/<int:hook_id>": Row(frozenset({"owner"}), refused=(403, 404)),
    "POST account/webhooks/<int:hook_id>/remove": Row(frozenset({"owner"}), refused=(403, 404)),
    "POST account/webhooks/<int:hook_id>/switch": Row(frozenset({"owner"}), refused=(403, 404)),
    "POST account/webhooks/<int:hook_id>/ping": Row(frozenset({"owner"}), refused=(403, 404)),
    "POST account/webhooks/<int:hook_id>/messages/<int:delivery_id>/again": Row(
        frozenset({"owner"}), refused=(403, 404)
    ),
    "GET metrics": Row(ADMINS, refused=(401,), stranger=401),
    "GET api/v1/docs": Row(SIGNED, is_slow=True),
    # --- comparing
    "GET compare": Row(READERS, query="run={run_id}&run={b}", is_slow=True),
    "GET compare/lanes": Row(READERS, query="run={run_id}&run={b}", is_slow=True),
    "GET compare/table.csv": Row(READERS, query="run={run_id}&run={b}", is_slow=True),
    "GET compare/table.json": Row(READERS, query="run={run_id}&run={b}", is_slow=True),
    "GET compare/sweep": Row(READERS, query="run={run_id}", is_slow=True),
    "GET compare/sweep.csv": Row(READERS, query="run={run_id}", is_slow=True),
    "GET compare/sweep.json": Row(READERS, query="run={run_id}", is_slow=True),
    # --- experiments
    "GET experiments": Row(SIGNED, is_slow=True),
    "GET experiments/doctor": Row(SIGNED),
    "POST experiments/plan": Row(SIGNED, body={"experiment": "blink/small", "on": "sim"}),
    "GET experiments/new": Row(SIGNED, is_slow=True),
    "POST experiments/new": Row(STARTERS, body={"spec": "@small", "on": "sim"}, is_slow=True),
    "GET experiments/<experiment:name>": Row(SIGNED, words={"name": "blink/small"}, is_slow=True),
    "POST experiments/<experiment:name>": Row(
        STARTERS, words={"name": "blink/small"}, body={"on": "sim"}, is_slow=True
    ),
    # --- benches
    "GET benches": Row(SIGNED),
    "GET benches/<slug:name>": Row(SIGNED, words=BENCH),
    "POST benches/<slug:name>/change": Row(ADMINS, words=BENCH),
    "POST benches/<slug:name>/lease": Row(STARTERS, words=BENCH, body={"minutes": 5}),
    "POST benches/<slug:name>/lease/extend": Row(OWNERS_LEASE, words=BENCH, body={"minutes": 5}),
    "POST benches/<slug:name>/lease/release": Row(OWNERS_LEASE, words=BENCH),
    # --- runs
    "GET runs": Row(SIGNED),
    "GET runs/table": Row(SIGNED),
    "POST runs/chosen": Row(SIGNED),
    "GET runs/<str:run_id>": RUN,
    "POST runs/<str:run_id>/cancel": Row(CHANGERS, refused=(302, 403)),
    "POST runs/<str:run_id>/extend": Row(CHANGERS, refused=(302, 403), body={"minutes": 5}),
    "GET runs/<str:run_id>/share": RUN,
    "POST runs/<str:run_id>/share": Row(CHANGERS, body={"visibility": "everyone"}),
    "GET runs/<str:run_id>/evidence": RUN,
    "GET runs/<str:run_id>/trials": RUN,
    "GET runs/<str:run_id>/log": RUN,
    "GET runs/<str:run_id>/queue": RUN,
    "GET runs/<str:run_id>/archive": Row(READERS, is_slow=True),
    "GET runs/<str:run_id>/files": RUN,
    "GET runs/<str:run_id>/files/<path:name>": Row(READERS, words={"name": "events/client0.jsonl"}),
    "GET runs/<str:run_id>/export/<str:form>": Row(READERS, is_slow=True),
    "GET runs/<str:run_id>/pack": RUN,
    "GET runs/<str:run_id>/story": Row(READERS, query="request=0"),
}

API: dict[str, Row] = {
    "GET /api/v1/openapi.json": Row(EVERYBODY),
    "GET /api/v1/health": Row(EVERYBODY),
    "GET /api/v1/me": Row(SIGNED),
    "GET /api/v1/tokens": Row(SIGNED),
    "DELETE /api/v1/tokens/{token_id}": Row(frozenset({"owner", "owner-read"}), refused=(403, 404)),
    "GET /api/v1/experiments": Row(SIGNED),
    "GET /api/v1/experiments/{name}": Row(SIGNED, words={"name": "blink/small"}),
    "GET /api/v1/topologies": Row(SIGNED, query="experiment=blink/small"),
    "GET /api/v1/schema/experiment": Row(SIGNED, is_slow=True),
    "POST /api/v1/validate": Row(SIGNED, body=SPEC, is_slow=True),
    # --- runs
    "GET /api/v1/runs": Row(SIGNED),
    "POST /api/v1/runs": Row(STARTERS, body=SPEC),
    "GET /api/v1/runs/{run_id}": RUN,
    "PATCH /api/v1/runs/{run_id}": Row(CHANGERS, body={"visibility": "everyone"}),
    "POST /api/v1/runs/{run_id}/cancel": CHANGE,
    "POST /api/v1/runs/{run_id}/extend": Row(CHANGERS, body={"minutes": 1}),
    "GET /api/v1/runs/{run_id}/events": RUN,
    "GET /api/v1/runs/{run_id}/verdict": RUN,
    "GET /api/v1/runs/{run_id}/export/{form}": Row(READERS, is_slow=True),
    "GET /api/v1/runs/{run_id}/artifacts": RUN,
    "GET /api/v1/runs/{run_id}/artifacts/{name}": Row(READERS, words={"name": "events/client0.jsonl"}),
    "HEAD /api/v1/runs/{run_id}/artifacts/{name}": Row(READERS, words={"name": "events/client0.jsonl"}),
    "GET /api/v1/runs/{a}/diff/{b}": Row(READERS, is_slow=True),
    # --- benches
    "GET /api/v1/benches": Row(SIGNED),
    "GET /api/v1/leases": Row(SIGNED),
    "POST /api/v1/leases": Row(STARTERS, body={"bench": "bench-1", "minutes": 5}),
    "POST /api/v1/leases/{lease_id}/extend": Row(OWNER_STARTS | {"admin"}, refused=(403, 404), body={"minutes": 1}),
    "DELETE /api/v1/leases/{lease_id}": Row(OWNER_STARTS | {"admin"}, refused=(403, 404)),
    # --- webhooks
    "GET /api/v1/webhooks": Row(STARTERS),
    "POST /api/v1/webhooks": Row(STARTERS, body={"url": "http://127.0.0.1/nobody"}),
    "GET /api/v1/webhooks/{hook_id}": Row(OWNER_STARTS, refused=(403, 404)),
    "PATCH /api/v1/webhooks/{hook_id}": Row(OWNER_STARTS, refused=(403, 404), body={"active": False}),
    "DELETE /api/v1/webhooks/{hook_id}": Row(OWNER_STARTS, refused=(403, 404)),
    "POST /api/v1/webhooks/{hook_id}/ping": Row(OWNER_STARTS, refused=(403, 404)),
    "GET /api/v1/webhooks/{hook_id}/deliveries": Row(OWNER_STARTS, refused=(403, 404)),
    "POST /api/v1/webhooks/{hook_id}/deliveries/{delivery_id}/redeliver": Row(OWNER_STARTS, refused=(403, 404)),
}

SOCKETS: dict[str, str] = {"ws/runs/<str:run_id>": READERS}
