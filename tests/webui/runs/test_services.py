from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connections
from django.utils import timezone

from webui.accounts.callers import by_session
from webui.accounts.models import User
from webui.accounts.services import user_close
from webui.audit.models import Entry
from webui.benches.models import Bench, Turn
from webui.benches.outlook import run_outlook
from webui.benches.placement import place
from webui.benches.refusals import NotYours, Taken
from webui.benches.situation import situation_now
from webui.runs import access, selectors, services
from webui.runs.models import Backend, Run
from webui.runs.specs import SpecFault
from webui.runs.states import Move, Outcome, State

SMALL = (Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml").read_text()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


def start(user: User, **fields: Any) -> Run:
    return services.run_start(owner=user, spec=SMALL, **({"backend": Backend.SIM} | fields))[0]


@pytest.mark.django_db(transaction=True)
def test_a_start_queues_and_tells_the_workers(user: User, sent: list[str]) -> None:
    run = start(user, experiment="blink/small", overrides=["seed=9"])
    assert (run.state, run.outcome) == (State.QUEUED, "")
    assert run.seed == 9
    assert run.systems == ["blink"]
    assert run.question == "Does every part work?"
    assert sent == [run.pk]


@pytest.mark.django_db
def test_a_bad_spec_is_refused_with_path_and_value(user: User) -> None:
    with pytest.raises(SpecFault, match=r"workload\.requests") as caught:
        start(user, overrides=["workload.requests=many"])
    assert caught.value.path == "workload.requests"
    assert not Run.objects.exists()


@pytest.mark.django_db
def test_a_question_that_no_database_keeps_is_refused(user: User) -> None:
    spec = SMALL.replace("Does every", r"Does \u0000 every")
    with pytest.raises(SpecFault, match="NUL"):
        services.run_start(owner=user, spec=spec, backend=Backend.SIM)
    assert not Run.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_same_key_gives_the_same_run(user: User, make_user: Callable[..., User], sent: list[str]) -> None:
    first, created = services.run_start(owner=user, spec=SMALL, backend=Backend.SIM, idempotency_key="k")
    again, created_again = services.run_start(owner=user, spec=SMALL, backend=Backend.SIM, idempotency_key="k")
    assert (created, created_again, again) == (True, False, first)
    assert sent == [first.pk]
    with pytest.raises(services.KeyReused, match=first.pk):
        services.run_start(owner=user, spec=SMALL, backend=Backend.SIM, overrides=["seed=2"], idempotency_key="k")
    other, _ = services.run_start(owner=make_user("bob"), spec=SMALL, backend=Backend.SIM, idempotency_key="k")
    assert other != first


@pytest.mark.django_db(transaction=True)
def test_the_same_key_at_the_same_moment_gives_one_run(user: User, sent: list[str]) -> None:
    barrier = threading.Barrier(6)

    def ask() -> str:
        barrier.wait()
        try:
            return services.run_start(owner=user, spec=SMALL, backend=Backend.SIM, idempotency_key="k")[0].pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        ids = {future.result() for future in [pool.submit(ask) for _ in range(6)]}
    assert len(ids) == 1
    assert sent == list(ids)


@pytest.mark.django_db(transaction=True)
def test_ten_claims_are_one(make_run: Callable[..., Run], bench: Bench) -> None:
    run = make_run()
    barrier = threading.Barrier(10)

    def claim(number: int) -> bool:
        barrier.wait()
        try:
            return services.run_claim(run_id=run.pk, lease_owner=f"w{number}", bench=bench.pk) is not None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(claim, range(10))) == 1
    run.refresh_from_db()
    assert (run.state, run.attempts) == (State.PREPARING, 1)


@pytest.mark.django_db(transaction=True)
def test_claims_of_two_benches_at_once_never_overfill_one(
    make_run: Callable[..., Run], make_user: Callable[..., User], make_bench: Callable[..., Bench], sent: list[str]
) -> None:
    """E5: each looks at the whole queue before it takes one run, so all of them look one after the other."""
    benches = [make_bench("alpha"), make_bench("beta")]
    runs = [make_run(backend="mininet", owner=make_user(f"p{number}")) for number in range(4)]
    pairs = [(run, bench) for run in runs for bench in benches]
    barrier = threading.Barrier(len(pairs))

    def claim(pair: tuple[Run, Bench]) -> bool:
        barrier.wait()
        try:
            return services.run_claim(run_id=pair[0].pk, lease_owner="w", bench=pair[1].pk) is not None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(pairs)) as pool:
        first = sum(pool.map(claim, pairs))
    assert first >= 1
    barrier = threading.Barrier(1)
    assert first + sum(map(claim, pairs)) == 2, "who came before its turn comes again"
    taken = Run.objects.filter(state=State.PREPARING).values_list("bench_id", flat=True)
    assert sorted(taken) == ["alpha", "beta"]
    assert Turn.objects.count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
def test_ten_cancels_are_one(make_run: Callable[..., Run], user: User, sent: list[str], state: State) -> None:
    run = make_run(state=state, lease_owner="w" if state is State.RUNNING else "")
    barrier = threading.Barrier(10)

    def cancel(_: int) -> bool:
        barrier.wait()
        try:
            return services.run_cancel(run_id=run.pk, user=user)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(cancel, range(10))) == 1
    run.refresh_from_db()
    assert run.cancel_requested_by == user
    if state is State.QUEUED:
        assert (run.state, run.outcome) == (State.FINISHED, Outcome.CANCELLED)
    else:
        assert (run.state, run.outcome) == (State.RUNNING, "")


@pytest.mark.django_db
def test_a_cancelled_or_finished_run_is_claimed_by_nobody(
    make_run: Callable[..., Run], bench: Bench, sent: list[str]
) -> None:
    queued = make_run(cancel_requested_at=timezone.now())
    finished = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    for run in (queued, finished):
        assert services.run_claim(run_id=run.pk, lease_owner="w", bench=bench.pk) is None
    assert services.run_claim(run_id="20260101-000000-000000", lease_owner="w", bench=bench.pk) is None
    assert not services.run_cancel(run_id=finished.pk, user=None)


@pytest.mark.django_db
def test_a_lease_that_ran_out_is_taken_over_and_the_old_worker_loses_it(
    make_run: Callable[..., Run], bench: Bench
) -> None:
    run = make_run()
    assert services.run_claim(run_id=run.pk, lease_owner="old", bench=bench.pk)
    assert services.run_advance(run_id=run.pk, lease_owner="old", move=Move.RUN)
    assert services.run_claim(run_id=run.pk, lease_owner="new", bench=bench.pk) is None
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    taken = services.run_claim(run_id=run.pk, lease_owner="new", bench=bench.pk)
    assert taken
    assert (taken.state, taken.attempts) == (State.RUNNING, 2)
    assert services.run_renew(run_id=run.pk, lease_owner="old") is None
    assert not services.run_finish(run_id=run.pk, outcome=Outcome.PASSED, detail="", lease_owner="old")
    assert services.run_renew(run_id=run.pk, lease_owner="new")
    services.run_abandon(run_id=run.pk, lease_owner="new")
    assert services.run_claim(run_id=run.pk, lease_owner="third", bench=bench.pk)


@pytest.mark.django_db
def test_a_run_moves_forward_once(make_run: Callable[..., Run], bench: Bench, sent: list[str]) -> None:
    run = make_run()
    services.run_claim(run_id=run.pk, lease_owner="w", bench=bench.pk)
    assert services.run_advance(run_id=run.pk, lease_owner="w", move=Move.RUN)
    assert not services.run_advance(run_id=run.pk, lease_owner="w", move=Move.RUN)
    assert services.run_advance(run_id=run.pk, lease_owner="w", move=Move.FINALISE)
    assert not services.run_advance(run_id=run.pk, lease_owner="w", move=Move.RUN)
    assert services.run_finish(run_id=run.pk, outcome=Outcome.FAILED, detail="why", lease_owner="w")
    assert not services.run_finish(run_id=run.pk, outcome=Outcome.PASSED, detail="")
    run.refresh_from_db()
    assert (run.state, run.outcome, run.detail, run.lease_owner) == (State.FINISHED, Outcome.FAILED, "why", "")
    assert run.finished_at


@pytest.mark.django_db
def test_an_outcome_belongs_to_finished_and_to_nothing_else(make_run: Callable[..., Run]) -> None:
    with pytest.raises(IntegrityError):
        make_run(state=State.RUNNING, outcome=Outcome.PASSED)


@pytest.mark.django_db
def test_a_finished_run_carries_its_summary(make_run: Callable[..., Run], put_run: Callable[[str], Path]) -> None:
    run = make_run(state=State.RUNNING)
    put_run(run.pk)
    assert services.run_finish(run_id=run.pk, outcome=Outcome.PASSED, detail="")
    run.refresh_from_db()
    assert run.fidelity == "faithful"
    assert run.summary["systems"]["blink"]["requests"]["completed"] == 24


@pytest.mark.django_db
def test_an_emulation_has_the_machine_to_itself_and_turns_are_kept(
    make_run: Callable[..., Run], make_bench: Callable[..., Bench], user: User
) -> None:
    def reason(run: Run) -> str:
        return run_outlook(run, by_session(user)).reason

    bench = make_bench(facts={"slots": 2})
    sims = [make_run(state=State.RUNNING, bench=bench), make_run()]
    emulation, later = make_run(backend="mininet"), make_run()
    assert reason(sims[1]) == "it starts in a moment"
    assert services.run_claim(run_id=emulation.pk, lease_owner="w", bench=bench.pk) is None
    assert services.run_claim(run_id=sims[1].pk, lease_owner="w", bench=bench.pk)
    assert "to itself" in reason(emulation)
    assert "as many simulations as it takes" in reason(later)
    assert "1 run ahead" in reason(later)
    Run.objects.filter(pk__in=[run.pk for run in sims]).update(state=State.FINISHED, outcome=Outcome.PASSED)
    assert services.run_claim(run_id=emulation.pk, lease_owner="w", bench=bench.pk)
    emulation.refresh_from_db()
    assert (emulation.bench_id, emulation.turn.emulation, emulation.turn.ends_at) == (bench.pk, True, None)
    assert reason(later) == f"run {emulation.label} has bench {bench.pk}"
    assert services.run_release(run_id=emulation.pk, lease_owner="w", detail="the bench was taken")
    emulation = Run.objects.get(pk=emulation.pk)
    assert (emulation.state, emulation.lease_until, emulation.bench_id) == (State.QUEUED, None, None)
    assert not Turn.objects.filter(run=emulation).exists()


@pytest.mark.django_db
def test_a_run_that_is_cancelled_while_its_bench_is_taken_ends(
    make_run: Callable[..., Run], bench: Bench, sent: list[str]
) -> None:
    run = make_run()
    services.run_claim(run_id=run.pk, lease_owner="w", bench=bench.pk)
    services.run_cancel(run_id=run.pk, user=None)
    assert not services.run_release(run_id=run.pk, lease_owner="w", detail="the bench was taken")
    run.refresh_from_db()
    assert (run.state, run.outcome) == (State.FINISHED, Outcome.CANCELLED)


@pytest.mark.django_db
def test_what_is_overdue_is_found(make_run: Callable[..., Run], bench: Bench) -> None:
    now = timezone.now()
    fresh, old = make_run(), make_run()
    orphan = make_run(state=State.RUNNING, bench=bench, lease_until=now - timedelta(seconds=1))
    make_run(state=State.RUNNING, bench=bench, lease_until=now + timedelta(seconds=5))
    make_run(state=State.RUNNING, origin="folder", visibility="everyone", owner=None)
    Bench.objects.update(facts={"slots": 9})
    Run.objects.filter(pk=old.pk).update(created_at=now - timedelta(seconds=9))
    assert selectors.run_orphans(now=now) == [(orphan.pk, bench.pk)]
    assert selectors.run_unheard(now=now) == [(old.pk, bench.pk)]
    assert fresh.pk in dict(place(situation_now()).starts)


@pytest.mark.django_db
def test_a_broker_that_is_away_costs_no_run(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    from webui.celery import app

    def broken(*_: Any, **__: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(app, "send_task", broken)
    run = start(user)
    services.run_send(run_id=run.pk)
    assert Run.objects.get(pk=run.pk).state == State.QUEUED


@pytest.mark.django_db(transaction=True)
def test_a_message_at_the_wrong_bench_goes_on_once_to_the_right_one(
    make_run: Callable[..., Run], make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    from webui.celery import app

    told: list[tuple[str, str]] = []
    monkeypatch.setattr(app, "send_task", lambda _name, args, queue, **_: told.append((args[0], queue)))
    make_bench("alpha")
    make_bench("beta", tags=["lab-2"])
    first, second = make_run(backend="mininet"), make_run(backend="mininet", needs=["lab-2"])
    assert services.run_claim(run_id=second.pk, lease_owner="w", bench="alpha") is None
    assert told == [(second.pk, "bench-beta")]
    assert services.run_claim(run_id=second.pk, lease_owner="w", bench="beta")
    assert services.run_claim(run_id=first.pk, lease_owner="w", bench="alpha")
    assert len(told) == 1


@pytest.mark.django_db
def test_the_end_wakes_the_next_in_the_queue(make_run: Callable[..., Run], bench: Bench, sent: list[str]) -> None:
    Bench.objects.update(facts={"slots": 1})
    running, queued = make_run(state=State.RUNNING, bench=bench), make_run()
    services.run_finish(run_id=running.pk, outcome=Outcome.PASSED, detail="")
    assert sent == [queued.pk]


@pytest.mark.django_db(transaction=True)
def test_a_closed_account_takes_its_queued_runs_along_and_no_others(
    make_run: Callable[..., Run], user: User, make_user: Callable[..., User], bench: Bench, sent: list[str]
) -> None:
    waits, goes_on = make_run(), make_run(state=State.RUNNING, bench=bench, lease_owner="w")
    theirs = make_run(owner=make_user("bob"))
    sent.clear()
    assert user_close(user=user)
    waits.refresh_from_db()
    assert (waits.state, waits.outcome, waits.detail) == (State.FINISHED, Outcome.CANCELLED, services.OWNER_CLOSED)
    assert waits.finished_at is not None
    [entry] = Entry.objects.filter(deed="run.cancel")
    assert (entry.thing, entry.detail) == (waits.pk, {"reason": services.OWNER_CLOSED})
    assert sent == [theirs.pk]  # whose turn it is now
    goes_on.refresh_from_db()
    assert goes_on.state == State.RUNNING
    with pytest.raises(NotYours, match="closed"):
        start(user)


@pytest.mark.django_db
def test_a_run_that_waits_behind_a_closed_account_is_cancelled_and_not_started(
    make_run: Callable[..., Run], user: User, bench: Bench, sent: list[str]
) -> None:
    """As one that a bench gave back after the account was closed."""
    run = make_run()
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert services.run_claim(run_id=run.pk, lease_owner="w", bench=bench.pk) is None
    run.refresh_from_db()
    assert (run.state, run.outcome, run.detail) == (State.FINISHED, Outcome.CANCELLED, services.OWNER_CLOSED)
    assert Entry.objects.filter(deed="run.cancel", thing=run.pk).count() == 1


@pytest.mark.django_db
def test_who_may_cancel(make_run: Callable[..., Run], user: User, make_user: Callable[..., User]) -> None:
    run = make_run(state=State.RUNNING)
    assert access.may_cancel(by_session(user), run)
    assert not access.may_cancel(by_session(make_user("bob")), run)
    admin = by_session(make_user("op", role="admin"))
    assert access.may_cancel(admin, run)
    assert not access.may_cancel(admin, make_run(origin="folder"))


@pytest.mark.django_db
def test_runs_are_found_by_id_label_and_filters(make_run: Callable[..., Run], user: User) -> None:
    one = make_run(question="Why is it late?")
    two = make_run(state=State.FINISHED, outcome=Outcome.PASSED, backend="mininet", owner=None, visibility="everyone")
    caller = by_session(user)
    assert selectors.run_get(run_id=one.pk, caller=caller) == one
    assert selectors.run_get(run_id=one.label, caller=caller) == one
    assert selectors.run_get(run_id="zzzzzz", caller=caller) is None
    assert list(selectors.run_list(caller=caller)) == [two, one]
    assert list(selectors.run_list(caller=caller, text="late")) == [one]
    assert list(selectors.run_list(caller=caller, outcome="passed", backend="mininet")) == [two]
    assert list(selectors.run_list(caller=caller, owner=user)) == [one]
    assert list(selectors.run_list(caller=caller, state="active")) == []


@pytest.mark.django_db(transaction=True)
def test_a_cancel_that_is_cut_off_leaves_no_run_queued_for_good(
    make_run: Callable[..., Run], user: User, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    with monkeypatch.context() as cut:
        cut.setattr(services, "UNSTARTED", None)  # the second of its two writes fails
        with pytest.raises(IntegrityError):
            services.run_cancel(run_id=run.pk, user=user)
    run.refresh_from_db()
    assert (run.state, run.cancel_requested_at) == (State.QUEUED, None)
    assert services.run_cancel(run_id=run.pk, user=user)
    run.refresh_from_db()
    assert run.outcome == Outcome.CANCELLED


@pytest.mark.django_db
def test_a_run_whose_time_is_over_is_not_extended(make_run: Callable[..., Run], user: User) -> None:
    run = make_run(state=State.RUNNING, ends_by=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Taken, match="run out"):
        services.run_extend(run_id=run.pk, minutes=5, by=by_session(user))
