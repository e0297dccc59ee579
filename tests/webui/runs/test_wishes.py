"""What is asked along with a run, what a person may have, and a run's time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from webui.accounts.callers import by_session
from webui.accounts.models import Quota
from webui.audit.models import Entry
from webui.benches.models import Turn
from webui.benches.refusals import BadRequest, NoBenchFits, NotYours, QuotaFull, Taken
from webui.runs import services
from webui.runs.estimates import expected_seconds
from webui.runs.models import Backend, Run, Visibility
from webui.runs.states import Outcome, State
from webui.runs.wishes import Wishes

pytestmark = pytest.mark.django_db

SMALL = (Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml").read_text()
Make = Callable[..., Any]


def start(user: Any, backend: Backend = Backend.SIM, *, key: str | None = None, **wishes: Any) -> Run:
    return services.run_start(owner=user, spec=SMALL, backend=backend, idempotency_key=key, wishes=Wishes(**wishes))[0]


def test_wishes_and_where_the_run_comes_from_stand_in_its_row(user: Any, make_bench: Make, sent: list[str]) -> None:
    make_bench("alpha", tags=["lab-2"])
    group = Group.objects.create(name="class")
    user.groups.add(group)
    first = start(user)
    run = start(
        user,
        needs=("lab-2",),
        time_limit_s=90,
        visibility=Visibility.GROUPS,
        groups=(group,),
        tags=("ring",),
        clone_of=first,
    )
    run.refresh_from_db()
    assert (run.needs, run.time_limit_s, run.visibility, run.tags) == (["lab-2"], 90, "groups", ["ring"])
    assert (list(run.groups.all()), run.clone_of) == ([group], first)
    assert len(run.revision) == 40
    assert Entry.objects.filter(deed="run.start", thing=run.pk, actor=user).exists()


def test_a_run_that_no_bench_can_ever_take_is_refused_and_nothing_is_left(user: Any, make_bench: Make) -> None:
    start(user, Backend.MININET)  # no bench is known yet, so it waits
    make_bench("alpha", abilities={"simulate": True, "emulate": "no root there"})
    with pytest.raises(NoBenchFits, match=r"alpha lacks emulate \(no root there\)"):
        start(user, Backend.MININET)
    with pytest.raises(NoBenchFits, match="alpha lacks the tag lab-9"):
        start(user, needs=("lab-9",))
    make_bench("far", seen_at=None, abilities={"simulate": True, "emulate": True}, tags=["lab-9"])
    assert start(user, needs=("lab-9",)).needs == ["lab-9"], "one that is away may come back"
    make_bench("new", abilities={"simulate": True})
    assert start(user, needs=("lab-8",)), "one whose probes are not done yet may be able to"
    assert Run.objects.count() == 3


@pytest.mark.parametrize(
    ("wishes", "path", "words"),
    [
        ({"needs": ("Not A Tag",)}, "needs", "a bench's tag"),
        ({"time_limit_s": 5}, "time_limit_s", "10 to 3600"),
        ({"time_limit_s": 3601}, "time_limit_s", "60 min is your quota"),
        ({"visibility": Visibility.GROUPS}, "groups", "at least one"),
    ],
)
def test_wishes_that_cannot_be_are_named(user: Any, wishes: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        start(user, **wishes)
    assert caught.value.path == path
    assert not Run.objects.exists()


def test_a_run_is_shared_only_with_ones_own_groups(user: Any) -> None:
    with pytest.raises(BadRequest, match="none of your groups"):
        start(user, visibility=Visibility.GROUPS, groups=(Group.objects.create(name="theirs"),))


def test_as_many_runs_wait_as_one_may_have_and_a_repeated_request_is_no_further_one(user: Any) -> None:
    Quota.objects.create(user=user, queued_runs=2)
    start(user)
    second = start(user, key="again")
    with pytest.raises(QuotaFull, match="2 of your runs are waiting"):
        start(user)
    assert start(user, key="again") == second
    Run.objects.filter(pk=second.pk).update(state=State.RUNNING)
    assert start(user)


def test_the_same_key_with_other_wishes_is_another_request(user: Any) -> None:
    start(user, key="k", tags=("one",))
    with pytest.raises(services.KeyReused):
        start(user, key="k", tags=("two",))


def test_what_the_last_run_took_is_what_the_next_one_is_thought_to_take(user: Any) -> None:
    now = timezone.now()
    first = start(user)
    assert first.expected_s is None
    Run.objects.filter(pk=first.pk).update(
        state=State.FINISHED,
        outcome=Outcome.FAILED,
        started_at=now - timedelta(seconds=42),
        finished_at=now,
    )
    assert start(user).expected_s == pytest.approx(42)
    assert start(user, Backend.MININET).expected_s is None


def test_what_a_run_from_the_command_line_took_says_nothing_of_an_experiment_that_nobody_has_run(user: Any) -> None:
    now = timezone.now()
    foreign = start(user)
    Run.objects.filter(pk=foreign.pk).update(
        state=State.FINISHED,
        outcome=Outcome.PASSED,
        started_at=now - timedelta(seconds=39),
        finished_at=now,
        request_digest="",
        experiment="",
    )
    assert expected_seconds(experiment="blink/demo", request_digest="", backend=Backend.SIM) is None
    assert expected_seconds(experiment="", request_digest="", backend=Backend.SIM) is None


def test_the_time_of_a_run_begins_with_its_claim(user: Any, make_bench: Make, sent: list[str]) -> None:
    make_bench("alpha")
    Quota.objects.create(user=user, run_minutes=7)
    for wish, seconds in ((None, 420), (90, 90)):
        run = start(user, time_limit_s=wish)
        claimed = services.run_claim(run_id=run.pk, lease_owner="w", bench="alpha")
        assert claimed
        assert claimed.ends_by
        assert (claimed.ends_by - timezone.now()).total_seconds() == pytest.approx(seconds, abs=5)
        assert claimed.turn.owner == user
        services.run_finish(run_id=run.pk, outcome=Outcome.PASSED, detail="", lease_owner="w")
        assert Turn.objects.get(run=run).ends_at is not None


def test_more_time_within_the_quota_by_owner_and_beyond_it_by_an_admin(
    user: Any, make_user: Make, make_bench: Make, sent: list[str]
) -> None:
    make_bench("alpha")
    run = start(user, time_limit_s=1800)
    me = by_session(user)
    with pytest.raises(Taken, match="has not started"):
        services.run_extend(run_id=run.pk, minutes=5, by=me)
    claimed = services.run_claim(run_id=run.pk, lease_owner="w", bench="alpha")
    assert claimed
    assert claimed.ends_by
    with pytest.raises(Taken, match=r"60 min in all.*30 more at most"):
        services.run_extend(run_id=run.pk, minutes=31, by=me)
    longer = services.run_extend(run_id=run.pk, minutes=30, by=me)
    assert longer.ends_by == claimed.ends_by + timedelta(minutes=30)
    with pytest.raises(Taken, match="it has all of them"):
        services.run_extend(run_id=run.pk, minutes=1, by=me)
    for odd in (0, -3, True, 10**9):
        with pytest.raises(BadRequest, match="minutes"):
            services.run_extend(run_id=run.pk, minutes=odd, by=me)
    with pytest.raises(NotYours):
        services.run_extend(run_id=run.pk, minutes=1, by=by_session(make_user("eve")))
    assert services.run_extend(run_id=run.pk, minutes=60, by=by_session(make_user("root", role="admin")))
    services.run_cancel(run_id=run.pk, user=user)
    with pytest.raises(Taken, match="ended or is ending"):
        services.run_extend(run_id=run.pk, minutes=1, by=me)


def test_bench_minutes_of_the_day_are_counted_and_others_go_first(
    user: Any, make_user: Make, make_bench: Make, make_run: Make, sent: list[str]
) -> None:
    bench = make_bench("alpha")
    Quota.objects.create(user=user, bench_minutes_per_day=30)
    now = timezone.now()
    old = make_run(state=State.FINISHED, outcome=Outcome.PASSED, backend="mininet", bench=bench)
    Turn.objects.create(
        run=old,
        owner=user,
        bench=bench,
        emulation=True,
        begins_at=now - timedelta(hours=25),
        ends_at=now - timedelta(hours=24),
    )
    mine, theirs = make_run(backend="mininet"), make_run(backend="mininet", owner=make_user("eve"))
    simulated = make_run()
    Turn.objects.filter(run=old).update(begins_at=now - timedelta(minutes=40), ends_at=now - timedelta(minutes=10))
    assert services.run_claim(run_id=mine.pk, lease_owner="w", bench="alpha") is None
    assert services.run_claim(run_id=theirs.pk, lease_owner="w", bench="alpha")
    services.run_finish(run_id=theirs.pk, outcome=Outcome.PASSED, detail="", lease_owner="w")
    assert services.run_claim(run_id=simulated.pk, lease_owner="w", bench="alpha"), "simulations take no bench minutes"
