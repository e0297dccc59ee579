from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from webui.accounts.callers import by_session
from webui.accounts.models import User
from webui.audit.models import Entry
from webui.runs.access import runs_readable
from webui.runs.models import Run
from webui.runs.sharing import ShareFault, run_readers, run_share

pytestmark = pytest.mark.django_db

Make = Callable[..., Any]


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def reads(user: User, run: Run) -> bool:
    return runs_readable(by_session(user)).filter(pk=run.pk).exists()


def test_a_run_is_private_until_its_owner_shares_it(user: User, make_user: Make, make_run: Make) -> None:
    run, bob, eve = make_run(), make_user("bob"), make_user("eve")
    team = Group.objects.create(name="team")
    team.user_set.add(user, bob)
    assert not reads(bob, run)
    assert run_share(run=run, caller=by_session(user), visibility="groups", groups=[team.pk])
    assert reads(bob, run)
    assert not reads(eve, run)
    assert not run_share(run=run, caller=by_session(user), visibility="groups", groups=[team.pk])
    assert run_share(run=run, caller=by_session(user), visibility="everyone")
    assert reads(eve, run)
    assert run_share(run=run, caller=by_session(user), visibility="private", groups=[team.pk])
    assert not reads(bob, run)
    assert run.groups.count() == 0
    deeds = Entry.objects.filter(deed="run.share", thing=run.pk)
    assert [entry.detail["visibility"] for entry in deeds] == ["private", "everyone", "groups"]


def test_only_with_ones_own_groups_and_only_ones_own_runs(user: User, make_user: Make, make_run: Make) -> None:
    run, eve = make_run(), make_user("eve")
    theirs = Group.objects.create(name="theirs")
    for caller, visibility, groups in (
        (eve, "everyone", []),
        (user, "groups", [theirs.pk]),
        (user, "groups", []),
        (user, "groups", [10**6]),
        (user, "public", []),
    ):
        with pytest.raises(ShareFault):
            run_share(run=run, caller=by_session(caller), visibility=visibility, groups=groups)
    run.refresh_from_db()
    assert run.visibility == "private"


def test_the_form_says_who_reads_and_those_are_the_ones_who_do(user: User, make_user: Make, make_run: Make) -> None:
    run = make_run()
    team, other = Group.objects.create(name="team"), Group.objects.create(name="other")
    people = {
        "teacher": make_user("teacher", role="instructor"),
        "mate": make_user("mate"),
        "elsewhere": make_user("elsewhere", role="instructor"),
        "root": make_user("root", role="admin"),
    }
    team.user_set.add(user, people["teacher"], people["mate"])
    other.user_set.add(people["elsewhere"])
    for visibility in ("private", "groups", "everyone"):
        run_share(run=run, caller=by_session(user), visibility=visibility, groups=[team.pk])
        words = " ".join(one.who for one in run_readers(run=run))
        for name, person in people.items():
            assert reads(person, run) == (name in words or "everyone" in words), (visibility, name)
    run_share(run=run, caller=by_session(user), visibility="groups", groups=[team.pk])
    page = as_(user).get(f"/runs/{run.pk}/share").content.decode()
    assert "mate" in page
    # Another reader learns neither the groups nor who is in them.
    seen = as_(people["mate"]).get(f"/runs/{run.pk}/share").content.decode()
    assert "teacher" not in seen
    assert '<form method="post" action="/runs' not in seen
    assert as_(people["elsewhere"]).get(f"/runs/{run.pk}/share").status_code == 404


def test_the_part_and_the_page(user: User, make_user: Make, make_run: Make) -> None:
    run = make_run()
    address = f"/runs/{run.pk}/share"
    part = {"HTTP_HX_REQUEST": "true"}
    assert b"<html" not in as_(user).get(address, **part).content
    answer = as_(user).post(address, {"visibility": "everyone"}, **part)
    assert answer.status_code == 200
    assert b"Saved" in answer.content
    assert as_(user).post(address, {"visibility": "groups"}).status_code == 422
    assert as_(user).post(address, {"visibility": "private"}).headers["Location"] == f"/runs/{run.pk}"
    assert as_(make_user("eve")).post(address, {"visibility": "everyone"}).status_code == 404
    run_share(run=run, caller=by_session(user), visibility="everyone")
    assert as_(make_user("mallory")).post(address, {"visibility": "private"}).status_code == 403
    run.refresh_from_db()
    assert run.visibility == "everyone"


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000, "-1", "1_0", "٣"])
def test_odd_numbers_of_groups_are_none_of_ones_own(user: User, make_run: Make, number: str) -> None:
    run = make_run()
    answer = as_(user).post(f"/runs/{run.pk}/share", {"visibility": "groups", "groups": number})
    assert answer.status_code == 422
    assert run.groups.count() == 0
