"""Each deed of the audit log is done once here and found there: by whom and to what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from tests.webui.conftest import SMALL
from webui.accounts import groups
from webui.accounts import services as accounts
from webui.accounts.callers import Caller, by_session
from webui.accounts.models import User
from webui.accounts.roles import Role
from webui.audit.deeds import Deed
from webui.audit.models import Entry
from webui.benches import leases
from webui.benches import services as benches
from webui.benches.models import Bench, Lease
from webui.hooks import services as hooks
from webui.hooks.models import Webhook
from webui.runs import services as runs
from webui.runs.models import Backend, Run
from webui.runs.sharing import run_share
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db

PUBLIC = "https://93.184.216.34/"


@dataclass
class Things:
    """What deeds are done to."""

    ada: User
    root: Caller
    run: Run
    bench: Bench
    group: Group
    lease: Lease
    hook: Webhook

    @property
    def me(self) -> Caller:
        return by_session(self.ada)


def signed_out(_: Things) -> None:
    client = Client()
    client.post("/login", {"username": "ada", "password": "correct-horse-9"})
    client.post("/logout")


def opened_again(told: Things) -> None:
    accounts.user_close(user=told.ada)
    accounts.user_open(user=told.ada)


def bench_opened(told: Things) -> None:
    Bench.objects.update(is_open=False)
    benches.bench_open(bench=told.bench, by=told.root)


def lease_taken(told: Things) -> None:
    leases.lease_release(lease=told.lease, by=told.me)
    leases.lease_take(bench=told.bench, by=told.me, minutes=30)


DONE: dict[Deed, tuple[Callable[[Things], object], str]] = {
    Deed.SIGN_IN: (lambda _: Client().post("/login", {"username": "ada", "password": "correct-horse-9"}), "ada"),
    Deed.SIGN_IN_REFUSED: (lambda _: Client().post("/login", {"username": "ada", "password": "no"}), "ada"),
    Deed.SIGN_OUT: (signed_out, "ada"),
    Deed.PASSWORD_CHOOSE: (lambda t: accounts.user_choose_password(user=t.ada, password="quite-another-9"), "ada"),
    Deed.PASSWORD_RESET: (lambda t: accounts.user_reset_password(user=t.ada), "ada"),
    Deed.USER_CREATE: (lambda _: accounts.user_create(name="new"), "new"),
    Deed.USER_CHANGE: (lambda t: accounts.user_change_role(user=t.ada, role=Role.VIEWER), "ada"),
    Deed.USER_CLOSE: (lambda t: accounts.user_close(user=t.ada), "ada"),
    Deed.USER_OPEN: (opened_again, "ada"),
    Deed.GROUP_CREATE: (lambda _: groups.group_create(name="class b"), "class b"),
    Deed.GROUP_CHANGE: (lambda t: groups.group_add(group=t.group, user=t.ada), "class a"),
    Deed.GROUP_REMOVE: (lambda t: groups.group_remove(group=t.group), "class a"),
    Deed.TOKEN_CREATE: (lambda t: accounts.token_create(user=t.ada, name="ci"), "ada"),
    Deed.TOKEN_REVOKE: (
        lambda t: accounts.token_revoke(user=t.ada, token_id=accounts.token_create(user=t.ada, name="ci")[0].pk),
        "ada",
    ),
    Deed.RUN_START: (lambda t: runs.run_start(owner=t.ada, spec=SMALL.read_text(), backend=Backend.SIM), ""),
    Deed.RUN_CANCEL: (lambda t: runs.run_cancel(run_id=t.run.pk, user=t.ada), "run"),
    Deed.RUN_EXTEND: (lambda t: runs.run_extend(run_id=t.run.pk, minutes=5, by=t.me), "run"),
    Deed.RUN_SHARE: (lambda t: run_share(run=t.run, caller=t.me, visibility="everyone"), "run"),
    Deed.RUN_LOST: (lambda t: runs.run_finish(run_id=t.run.pk, outcome=Outcome.LOST, detail="gone"), "run"),
    Deed.BENCH_OPEN: (bench_opened, "alpha"),
    Deed.BENCH_CLOSE: (lambda t: benches.bench_close(bench=t.bench, by=t.root), "alpha"),
    Deed.BENCH_CHANGE: (lambda t: benches.bench_tag(bench=t.bench, tags=["lab"], by=t.root), "alpha"),
    Deed.BENCH_HEALTH: (
        lambda _: benches.bench_report(name="alpha", reason="no disk", facts={}, tags=(), simulates=True),
        "alpha",
    ),
    Deed.LEASE_TAKE: (lease_taken, "alpha"),
    Deed.LEASE_EXTEND: (lambda t: leases.lease_extend(lease=t.lease, by=t.me, minutes=5), "alpha"),
    Deed.LEASE_RELEASE: (lambda t: leases.lease_release(lease=t.lease, by=t.me), "alpha"),
    Deed.HOOK_CREATE: (lambda t: hooks.hook_create(owner=t.ada, url=PUBLIC, events=["run.finished"]), ""),
    Deed.HOOK_CHANGE: (lambda t: hooks.hook_change(hook=t.hook, is_active=False), "hook"),
    Deed.HOOK_REMOVE: (lambda t: hooks.hook_remove(hook=t.hook), "hook"),
}
"""How it is done, and what the log calls the thing: `run` and `hook` stand for their numbers, empty for a new one."""


def test_every_deed_is_done_here() -> None:
    assert set(DONE) == set(Deed)


@pytest.mark.parametrize("deed", DONE)
def test_a_deed_is_written_down(
    deed: Deed, user: User, make_user: Any, make_run: Any, make_bench: Any, sent: list[str]
) -> None:
    now = timezone.now()
    bench = make_bench("alpha")
    told = Things(
        ada=user,
        root=by_session(make_user("root", role="admin")),
        run=make_run(state=State.RUNNING, ends_by=now + timedelta(minutes=1)),
        bench=bench,
        group=Group.objects.create(name="class a"),
        lease=Lease.objects.create(bench=bench, holder=user, ends_at=now + timedelta(minutes=30)),
        hook=Webhook.objects.create(owner=user, url=PUBLIC, secret="s", events=["run.finished"]),
    )
    names = {"run": told.run.pk, "hook": str(told.hook.pk)}
    do, thing = DONE[deed]
    do(told)
    (entry,) = Entry.objects.filter(deed=deed.value)
    assert entry.at >= now
    assert entry.who
    assert entry.thing == names.get(thing, thing) or not thing
