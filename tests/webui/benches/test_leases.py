"""Leases: one person's bench for a while, and how it ends. Known faults E2 and E3."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from webui.accounts.callers import by_session
from webui.accounts.models import Quota
from webui.accounts.services import user_close
from webui.audit.models import Entry
from webui.benches.leases import UNUSED_AFTER, lease_extend, lease_release, lease_take, leases_expire
from webui.benches.models import Bench, Lease
from webui.benches.outlook import run_outlook
from webui.benches.refusals import BadRequest, NotYours, QuotaFull, Refusal, Taken
from webui.benches.selectors import bench_list, lease_open
from webui.runs import services
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db

Make = Callable[..., Any]


def take(bench: Bench, person: Any, minutes: int = 60) -> Lease:
    return lease_take(bench=bench, by=by_session(person), minutes=minutes)


def ago(minutes: float) -> Any:
    return timezone.now() - timedelta(minutes=minutes)


def test_only_the_holders_runs_start_and_others_are_told_until_when(
    make_bench: Make, make_run: Make, make_user: Make, user: Any
) -> None:
    bench = make_bench("alpha")
    lease = take(bench, user)
    eve = make_user("eve")
    theirs, mine = make_run(owner=eve), make_run(owner=user)
    assert services.run_claim(run_id=theirs.pk, lease_owner="w", bench="alpha") is None
    assert services.run_claim(run_id=mine.pk, lease_owner="w", bench="alpha")
    reason = run_outlook(theirs, by_session(eve)).reason
    assert reason == f"bench alpha is leased to somebody else until {lease.ends_at:%H:%M} UTC"
    starts_at = run_outlook(theirs, by_session(eve)).starts_at
    assert starts_at is not None
    assert abs((starts_at - lease.ends_at).total_seconds()) < 1
    [card] = bench_list(caller=by_session(eve))
    assert card.lease
    assert (card.lease.holder, card.lease.mine, card.lease.may_change) == (user.username, False, False)
    assert 59 <= card.lease.minutes_left <= 60


def test_a_run_under_way_when_a_lease_begins_or_ends_goes_on(
    make_bench: Make, make_run: Make, make_user: Make, user: Any, sent: list[str]
) -> None:
    """E3: the lease ends while the holder's run is still being set up."""
    bench = make_bench("alpha")
    before = make_run(owner=make_user("eve"))
    assert services.run_claim(run_id=before.pk, lease_owner="w", bench="alpha")
    lease = take(bench, user)
    assert services.run_renew(run_id=before.pk, lease_owner="w")
    setting_up = make_run(owner=user)
    assert services.run_claim(run_id=setting_up.pk, lease_owner="v", bench="alpha")
    Lease.objects.update(ends_at=ago(0))
    assert leases_expire() == [lease.pk]
    assert leases_expire() == []
    kept = services.run_renew(run_id=setting_up.pk, lease_owner="v")
    assert kept
    assert (kept.state, kept.cancel_requested_at) == (State.PREPARING, None)
    assert services.run_finish(run_id=setting_up.pk, outcome=Outcome.PASSED, detail="", lease_owner="v")
    assert Entry.objects.get(deed="lease.release").detail["reason"] == "its time ran out"
    after = make_run(owner=before.owner)
    assert services.run_claim(run_id=after.pk, lease_owner="u", bench="alpha")


def test_a_lease_that_nobody_uses_ends(make_bench: Make, make_run: Make, user: Any) -> None:
    """E2: taken, never used; the bench is everybody's again."""
    bench = make_bench("alpha")
    lease = take(bench, user, minutes=240)
    Lease.objects.update(begins_at=timezone.now() - UNUSED_AFTER + timedelta(seconds=30))
    assert leases_expire() == []
    Lease.objects.update(begins_at=timezone.now() - UNUSED_AFTER)
    run = make_run(owner=user, state=State.RUNNING, bench=bench)
    assert leases_expire() == [], "a run of the holder's is under way"
    Run.objects.filter(pk=run.pk).update(state=State.FINISHED, outcome=Outcome.PASSED)
    assert leases_expire() == [lease.pk]
    assert lease_open(bench="alpha") is None
    assert Entry.objects.get(deed="lease.release").detail["reason"] == "no run for 15 min"
    assert take(bench, user)


def test_a_used_lease_ends_15_minutes_after_its_last_run(
    make_bench: Make, make_run: Make, user: Any, sent: list[str]
) -> None:
    lease = take(make_bench("alpha"), user, minutes=240)
    Lease.objects.update(begins_at=ago(60))
    run = make_run(owner=user)
    services.run_claim(run_id=run.pk, lease_owner="w", bench="alpha")
    services.run_finish(run_id=run.pk, outcome=Outcome.PASSED, detail="", lease_owner="w")
    assert leases_expire() == []
    assert leases_expire(now=timezone.now() + UNUSED_AFTER) == [lease.pk]


def test_extension_and_quota(make_bench: Make, make_user: Make, user: Any) -> None:
    bench = make_bench("alpha")
    Quota.objects.create(user=user, lease_minutes=30)
    with pytest.raises(BadRequest, match="5 to 30"):
        take(bench, user, 31)
    for odd in (0, -1, 4, True):
        with pytest.raises(BadRequest, match="minutes"):
            take(bench, user, odd)
    lease = take(bench, user, 20)
    with pytest.raises(Taken, match="30 min in all"):
        lease_extend(lease=lease, by=by_session(user), minutes=11)
    longer = lease_extend(lease=lease, by=by_session(user), minutes=10)
    assert (longer.ends_at - longer.begins_at).total_seconds() == pytest.approx(1800, abs=1)
    eve, admin = make_user("eve"), make_user("root", role="admin")
    for deed in (lambda: lease_release(lease=lease, by=by_session(eve)),
                 lambda: lease_extend(lease=lease, by=by_session(eve), minutes=1)):  # fmt: skip
        with pytest.raises(NotYours):
            deed()
    assert lease_extend(lease=lease, by=by_session(admin), minutes=5)
    assert lease_release(lease=lease, by=by_session(admin))
    assert not lease_release(lease=lease, by=by_session(user))
    with pytest.raises(Taken, match="has ended"):
        lease_extend(lease=lease, by=by_session(user), minutes=1)


def test_nobody_keeps_a_bench_from_others_by_taking_it_again(
    make_bench: Make, make_run: Make, make_user: Make, user: Any
) -> None:
    alpha, beta = make_bench("alpha"), make_bench("beta")
    lease = take(alpha, user)
    with pytest.raises(QuotaFull, match="alpha already"):
        take(beta, user)
    with pytest.raises(Taken, match=f"leased to {user.username}"):
        take(alpha, make_user("eve"))
    lease_release(lease=lease, by=by_session(user))
    waiting = make_run(owner=make_user("bob"))
    with pytest.raises(Taken, match="their turn comes first"):
        take(alpha, user)
    Run.objects.filter(pk=waiting.pk).update(needs=["lab-7"])  # nothing that alpha could take
    assert take(alpha, user)


def test_a_bench_that_is_closed_ill_or_away_is_not_leased(make_bench: Make, user: Any, make_user: Make) -> None:
    for fields in ({"is_open": False}, {"health": "ill", "reason": "no disk"}, {"seen_at": ago(1)}):
        bench = make_bench("alpha", **fields)
        with pytest.raises(Taken):
            take(bench, user)
        bench.delete()
    with pytest.raises(NotYours):
        take(make_bench("beta"), make_user("vera", role="viewer"))
    assert not Lease.objects.exists()


def test_a_lease_ends_with_its_holders_account(make_bench: Make, user: Any, make_user: Make) -> None:
    bench = make_bench("alpha")
    lease = take(bench, user)
    assert leases_expire() == []
    user_close(user=user)
    assert leases_expire() == [lease.pk]
    assert take(bench, make_user("eve"))


@pytest.mark.django_db(transaction=True)
def test_eight_who_take_it_at_once_are_one(make_bench: Make, make_user: Make) -> None:
    """E5: all or nothing; nobody is left with half of it."""
    bench = make_bench("alpha")
    people = [make_user(f"p{number}") for number in range(8)]
    barrier = threading.Barrier(8)

    def ask(person: Any) -> bool:
        barrier.wait()
        try:
            take(bench, person)
        except Refusal:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, people)) == 1
    assert Lease.objects.filter(released_at=None).count() == 1
