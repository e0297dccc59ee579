"""Pages of benches: who sees what, and what their forms do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from webui.benches.models import Bench, Lease, Turn
from webui.runs.models import Run
from webui.runs.states import State

pytestmark = pytest.mark.django_db

Make = Callable[..., Any]


@pytest.fixture
def as_admin(make_user: Make) -> Client:
    client = Client()
    client.force_login(make_user("root", role="admin"))
    return client


def test_without_a_bench_the_page_says_what_to_do(logged_in: Client) -> None:
    page = logged_in.get("/benches").content.decode()
    assert "No bench has reported yet" in page
    assert "looplane worker" in page


def test_benches_queue_and_reasons_name_only_what_may_be_read(
    logged_in: Client, make_bench: Make, make_run: Make, make_user: Make, user: Any
) -> None:
    bench = make_bench("alpha", tags=["lab-2"], facts={"slots": 1, "cores": 2})
    other = make_user("eve")
    busy = make_run(state=State.RUNNING, backend="mininet", bench=bench, owner=other, question="secret question")
    hidden = make_run(owner=other, question="another secret")
    mine = make_run(question="mine")
    for address in ("/benches", "/benches?now", "/benches/alpha", "/benches/alpha?now"):
        page = logged_in.get(address).content.decode()
        assert mine.label in page
        for word in (busy.label, hidden.label, busy.pk, hidden.pk, "secret"):
            assert word not in page
        assert "somebody else" in page
    busy.visibility = "everyone"
    busy.save()
    assert f"run {busy.label} has bench alpha" in logged_in.get("/benches").content.decode()


def test_the_only_bench_is_not_free_while_an_emulation_of_the_command_line_has_the_machine(
    logged_in: Client, make_bench: Make, make_run: Make
) -> None:
    make_bench("alpha")
    run = make_run(state=State.RUNNING, backend="mininet", bench=None, origin="folder", owner=None)
    for address in ("/benches", "/benches/alpha"):
        page = logged_in.get(address).content.decode()
        assert "1 run</span>" in page
        assert f'href="/runs/{run.pk}"' in page or "1 of somebody else" in page
    make_bench("beta")
    assert "1 run</span>" not in logged_in.get("/benches").content.decode()


def test_a_bench_shows_abilities_findings_and_who_had_it(
    logged_in: Client, make_bench: Make, make_run: Make, user: Any
) -> None:
    findings = [{"tone": "warn", "title": "Two cores", "detail": "slow <b>", "command": "buy more"}]
    abilities = {"simulate": True, "emulate": "no root there", "interface:eth9": True}
    bench = make_bench("alpha", abilities=abilities, findings=findings)
    run = make_run(state=State.FINISHED, outcome="passed", bench=bench)
    ago = timezone.now() - timedelta(minutes=5)
    Turn.objects.create(run=run, owner=user, bench=bench, emulation=False, begins_at=ago, ends_at=timezone.now())
    page = logged_in.get("/benches/alpha").content.decode()
    for words in ("no root there", "interface:eth9", "Two cores", "slow &lt;b&gt;", "buy more", run.label):
        assert words in page
    assert logged_in.get("/benches/none").status_code == 404


def test_take_extend_and_release_from_the_page(logged_in: Client, make_bench: Make, user: Any) -> None:
    make_bench("alpha")
    page = logged_in.post("/benches/alpha/lease", {"minutes": 30, "purpose": "class <7>"}, follow=True).content.decode()
    assert "Bench alpha is yours until" in page
    assert "class &lt;7&gt;" in page
    assert "Release" in page
    logged_in.post("/benches/alpha/lease/extend", {"minutes": 15})
    lease = Lease.objects.get()
    assert (lease.ends_at - lease.begins_at).total_seconds() == pytest.approx(45 * 60, abs=5)
    assert "is free for everybody" in logged_in.post("/benches/alpha/lease/release", follow=True).content.decode()
    assert "The lease has ended." in logged_in.post("/benches/alpha/lease/release", follow=True).content.decode()


@pytest.mark.parametrize("minutes", ["", "many", "0", "-5", "99999999999"])
def test_odd_minutes_change_nothing_and_are_named(logged_in: Client, make_bench: Make, minutes: str) -> None:
    make_bench("alpha")
    page = logged_in.post("/benches/alpha/lease", {"minutes": minutes}, follow=True).content.decode()
    assert "minutes" in page
    assert not Lease.objects.exists()


def test_a_viewer_is_offered_no_lease_and_gets_none(make_user: Make, make_bench: Make) -> None:
    make_bench("alpha")
    client = Client()
    client.force_login(make_user("vera", role="viewer"))
    page = client.get("/benches/alpha").content.decode()
    assert "/benches/alpha/lease" not in page
    assert "/benches/alpha/change" not in page
    assert client.post("/benches/alpha/lease", {"minutes": 30}).status_code == 403
    assert not Lease.objects.exists()


def test_only_admins_close_open_tag_and_remove(logged_in: Client, as_admin: Client, make_bench: Make) -> None:
    bench = make_bench("alpha", facts={"tags": ["own"]}, tags=["own"])
    for what in ("close", "open", "forget", "tags"):
        assert logged_in.post("/benches/alpha/change", {"do": what, "tags": "x"}).status_code == 403
    as_admin.post("/benches/alpha/change", {"do": "close"})
    bench.refresh_from_db()
    assert not bench.is_open
    assert "closed" in logged_in.get("/benches").content.decode()
    as_admin.post("/benches/alpha/change", {"do": "open"})
    as_admin.post("/benches/alpha/change", {"do": "tags", "tags": "lab-2 lab-2 gpu"})
    bench.refresh_from_db()
    assert (bench.is_open, bench.tags) == (True, ["own", "lab-2", "gpu"])
    said = as_admin.post("/benches/alpha/change", {"do": "tags", "tags": "Not/A/Tag"}, follow=True).content.decode()
    assert "a tag has up to 40" in said
    assert "stop it first" in as_admin.post("/benches/alpha/change", {"do": "forget"}, follow=True).content.decode()
    Bench.objects.update(seen_at=timezone.now() - timedelta(hours=2))
    answer = as_admin.post("/benches/alpha/change", {"do": "forget"})
    assert answer.headers["Location"] == "/benches"
    assert not Bench.objects.exists()


def test_a_run_is_given_more_time_by_its_owner(
    logged_in: Client, make_bench: Make, make_run: Make, make_user: Make
) -> None:
    bench = make_bench("alpha")
    now = timezone.now()
    mine = make_run(state=State.RUNNING, bench=bench, ends_by=now + timedelta(minutes=5))
    theirs = make_run(state=State.RUNNING, bench=bench, ends_by=now, owner=make_user("eve"))
    assert logged_in.post(f"/runs/{mine.pk}/extend", {"minutes": 10}).status_code == 302
    mine.refresh_from_db()
    assert mine.ends_by == now + timedelta(minutes=15)
    assert logged_in.post(f"/runs/{theirs.pk}/extend", {"minutes": 10}).status_code == 404
    Run.objects.filter(pk=theirs.pk).update(visibility="everyone")
    assert logged_in.post(f"/runs/{theirs.pk}/extend", {"minutes": 10}).status_code == 403
