"""Pages and services about other people: who makes, changes, closes; secrets that are shown once."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from webui.accounts import groups, selectors, services
from webui.accounts.agents import agent_words
from webui.accounts.callers import by_session
from webui.accounts.models import Session, User
from webui.accounts.roles import Right, Role, Scope, rights
from webui.audit.models import Entry

pytestmark = pytest.mark.django_db

Make = Callable[..., User]
SECRET = re.compile(r'id="secret"[^>]*>([^<]+)<')


@pytest.fixture
def admin(make_user: Make) -> User:
    return make_user("root", role="admin")


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


# --- rights ----------------------------------------------------------------------------------------------------------

SCOPES = st.sets(st.sampled_from(list(Scope)))


@given(st.sampled_from(list(Role)), SCOPES, SCOPES)
def test_rights_never_grow_when_a_scope_is_taken_away(role: Role, scopes: set[Scope], taken: set[Scope]) -> None:
    assert rights(role, scopes - taken) <= rights(role, scopes) <= rights(role)


@given(SCOPES, st.sampled_from(list(Role)), st.sampled_from(list(Role)))
def test_a_higher_role_has_all_of_a_lower_one(scopes: set[Scope], one: Role, other: Role) -> None:
    order = list(Role)
    low, high = sorted((one, other), key=order.index)
    assert rights(low, scopes) <= rights(high, scopes)


def test_every_right_is_somebodys_and_no_scope_is_none() -> None:
    assert rights(Role.ADMIN) == set(Right)
    for role in Role:
        assert Right.READ in rights(role)
        assert not rights(role, [])


# --- people ----------------------------------------------------------------------------------------------------------


def test_an_admin_makes_somebody_and_sees_the_password_once(admin: User) -> None:
    team = Group.objects.create(name="team")
    client = as_(admin)
    made = client.post("/people", {"name": "bob", "role": "viewer", "groups": [team.pk]})
    assert made.status_code == 303
    stored = json.dumps([row.get_decoded() for row in Session.objects.all()])
    page = client.get(made.headers["Location"]).content.decode()
    found = SECRET.search(page)
    assert found
    assert found[1] not in stored  # what lies in the session is of no use without the cookie
    assert SECRET.search(client.get("/people/bob").content.decode()) is None
    bob = User.objects.get(username="bob")
    assert (bob.role, list(bob.groups.all()), bob.check_password(found[1])) == ("viewer", [team], True)
    assert client.post("/people", {"name": "BOB", "role": "viewer"}).status_code == 422
    assert client.post("/people", {"name": "a b", "role": "king"}).status_code == 422
    assert User.objects.count() == 2


def test_a_secret_is_for_its_own_page_and_browser(admin: User) -> None:
    client = as_(admin)
    client.post("/people", {"name": "bob", "role": "viewer"})
    client.post("/people", {"name": "eve", "role": "viewer"})
    assert SECRET.search(client.get("/people/bob").content.decode()) is None
    assert SECRET.search(client.get("/account/tokens").content.decode()) is None
    client.cookies.pop("shown-once")
    assert SECRET.search(client.get("/people/eve").content.decode()) is None


def test_making_a_token_again_takes_a_form_not_a_reload(logged_in: Client, user: User) -> None:
    made = logged_in.post("/account/tokens", {"name": "ci", "days": 3, "scopes": ["read"]})
    assert made.status_code == 303
    for _ in range(3):
        logged_in.get(made.headers["Location"])
    assert selectors.token_list(user=user).get().scopes == ["read"]
    assert logged_in.post("/account/tokens", {"name": "ci", "days": 3, "scopes": ["admin"]}).status_code == 422
    assert logged_in.post("/account/tokens", {"name": "ci", "days": 3}).status_code == 422


def test_role_groups_and_limits(admin: User, user: User) -> None:
    team = groups.group_create(name="team")
    client = as_(admin)
    assert client.post("/people/ada", {"role": "instructor", "groups": [team.pk]}).status_code == 303
    user.refresh_from_db()
    assert (user.role, list(user.groups.all())) == ("instructor", [team])
    client.post("/people/ada", {"role": "instructor"})
    assert not user.groups.exists()
    assert client.post("/people/ada/quota", {"active_runs": "1", "queued_runs": ""}).status_code == 303
    assert (user.quota.active_runs, user.quota.queued_runs) == (1, None)
    assert client.post("/people/ada/quota", {"active_runs": "-1"}).status_code == 422
    assert client.post("/people/ada/quota", {"active_runs": "many"}).status_code == 422
    assert client.get("/people/nobody").status_code == 404
    deeds = [entry.deed for entry in Entry.objects.filter(actor=admin).order_by("id")]
    assert deeds == ["user.change", "group.change", "group.change", "user.change"]


def test_there_is_always_an_admin(admin: User) -> None:
    client = as_(admin)
    assert client.post("/people/root", {"role": "viewer"}).status_code == 422
    client.post("/people/root/close")
    admin.refresh_from_db()
    assert (admin.role, admin.is_active) == ("admin", True)
    with pytest.raises(services.AccountError, match="only admin"):
        services.user_close(user=admin)
    other, _ = services.user_create(name="second", role=Role.ADMIN)
    assert services.user_close(user=other)


def test_closing_ends_everything_and_opening_gives_no_token_back(admin: User, user: User, logged_in: Client) -> None:
    _, secret = services.token_create(user=user, name="ci")
    client = as_(admin)
    client.post("/people/ada/close")
    assert logged_in.get("/runs").status_code == 302
    assert selectors.token_find(secret=secret) is None
    assert not user.sessions.exists()
    client.post("/people/ada/close", {"open": "1"})
    assert as_(user).get("/runs").status_code == 200
    assert selectors.token_find(secret=secret) is None


def test_an_admin_ends_sessions_tokens_and_passwords_of_others(admin: User, user: User, logged_in: Client) -> None:
    token, _ = services.token_create(user=user, name="ci")
    client = as_(admin)
    client.post("/people/ada/sessions")
    assert logged_in.get("/runs").status_code == 302
    client.post(f"/people/ada/tokens/{token.pk}")
    assert not selectors.token_list(user=user).exists()
    page = client.post("/people/ada/password", follow=True).content.decode()
    found = SECRET.search(page)
    user.refresh_from_db()
    assert found
    assert user.check_password(found[1])
    assert user.one_time_password
    client.post("/people/root/password")
    admin.refresh_from_db()
    assert not admin.one_time_password


def test_people_are_found_by_name_group_role_and_closed(admin: User, user: User, make_user: Make) -> None:
    bob = make_user("bob", role="viewer")
    groups.group_add(group=groups.group_create(name="night class"), user=bob)
    services.user_close(user=user)
    for query, names in (
        ("text=night", {"bob"}),
        ("text=BO", {"bob"}),
        ("role=admin", {"root"}),
        ("closed=1", {"ada"}),
        ("text=%00&role=king&page=x", {"ada", "bob", "root"}),
        ("text=nobody", set()),
    ):
        page = as_(admin).get(f"/people?{query}").content.decode()
        assert set(re.findall(r'href="/people/(\w+)" data-row', page)) == names, query


# --- sessions --------------------------------------------------------------------------------------------------------


def test_ones_sessions_are_listed_and_ended(user: User) -> None:
    browsers = [Client(HTTP_USER_AGENT=f"Mozilla/5.0 (X11; Linux) Firefox/{number}") for number in (131, 132, 133)]
    for browser in browsers:
        browser.post("/login", {"username": "ada", "password": "correct-horse-9"})
    page = browsers[0].get("/account").content.decode()
    assert "Firefox 132 on Linux" in page
    for browser in browsers:
        assert browser.session.session_key not in page
    second = Session.objects.get(session_key=browsers[1].session.session_key)
    browsers[0].post(f"/account/sessions/{second.number}/end")
    assert browsers[1].get("/runs").status_code == 302
    assert browsers[2].get("/runs").status_code == 200
    browsers[0].post("/account/sessions/others/end")
    assert browsers[2].get("/runs").status_code == 302
    assert browsers[0].get("/runs").status_code == 200


def test_nobody_ends_anothers_session(logged_in: Client, user: User, make_user: Make) -> None:
    number = Session.objects.get(user=user).number
    as_(make_user("eve")).post(f"/account/sessions/{number}/end")
    assert logged_in.get("/runs").status_code == 200


def test_a_session_has_another_key_after_sign_in_and_after_a_new_password(client: Client, user: User) -> None:
    client.get("/login")
    client.post("/login", {"username": "ada", "password": "correct-horse-9"})
    first = client.session.session_key
    words = {"present": "correct-horse-9", "password": "a fine horse 9", "again": "a fine horse 9"}
    client.post("/account/password", words)
    assert client.session.session_key != first
    assert [row.session_key for row in Session.objects.filter(user=user)] == [client.session.session_key]


def test_a_session_ends_two_weeks_after_sign_in_however_much_it_is_used(
    client: Client, user: User, settings: Any
) -> None:
    from datetime import timedelta

    from django.utils import timezone

    from webui.accounts.sessions import OPENED, SEEN

    client.post("/login", {"username": "ada", "password": "correct-horse-9"})
    session = client.session
    session[OPENED] = (timezone.now() - settings.SESSION_LONGEST + timedelta(seconds=100)).isoformat()
    session[SEEN] = (timezone.now() - timedelta(minutes=2)).isoformat()
    session.save()
    answer = client.get("/runs")
    assert answer.status_code == 200
    assert 0 < int(answer.cookies[settings.SESSION_COOKIE_NAME]["max-age"]) <= 100
    session = client.session
    session[OPENED] = (timezone.now() - settings.SESSION_LONGEST).isoformat()
    session.save()
    assert client.get("/runs").status_code == 302


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537 Chrome/131.0 Safari/537 Edg/131.0", "Edge 131 on Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X) AppleWebKit/605 Version/18.1 Safari/605", "Safari 18 on Mac OS"),
        ("curl/8.5", "curl 8"),
        ("", "unknown"),
        ("x" * 400, "x" * 40),
    ],
)
def test_browsers_in_words(agent: str, words: str) -> None:
    assert agent_words(agent) == words


# --- groups ----------------------------------------------------------------------------------------------------------


def test_an_instructor_says_who_is_in_their_group_and_in_no_other(admin: User, user: User, make_user: Make) -> None:
    teacher, colleague = make_user("teacher", role="instructor"), make_user("colleague", role="instructor")
    theirs, other = groups.group_create(name="theirs"), groups.group_create(name="other")
    groups.group_add(group=theirs, user=teacher)
    client = as_(teacher)
    assert client.post(f"/groups/{theirs.pk}", {"name": "ada"}).status_code == 302
    assert user.groups.get() == theirs
    # They would read the runs of whoever they take in: not of people of their own rank or above.
    for name in ("colleague", "root", "nobody"):
        assert client.post(f"/groups/{theirs.pk}", {"name": name}).status_code == 422
    assert not colleague.groups.exists()
    assert client.get(f"/groups/{other.pk}").status_code == 404
    client.post(f"/groups/{theirs.pk}/members/ada/drop")
    assert not user.groups.exists()
    assert client.post("/groups", {"name": "mine"}).status_code == 403
    assert as_(admin).post(f"/groups/{theirs.pk}", {"name": "colleague"}).status_code == 302


def test_members_see_their_groups_and_change_nothing(user: User, make_user: Make) -> None:
    team = groups.group_create(name="night-class")
    groups.group_add(group=team, user=user)
    page = as_(user).get(f"/groups/{team.pk}").content.decode()
    assert "Take out" not in page
    assert as_(user).post(f"/groups/{team.pk}", {"name": "ada"}).status_code == 403
    assert "night-class" in as_(user).get("/groups").content.decode()
    assert "night-class" not in as_(make_user("eve")).get("/groups").content.decode()


@pytest.mark.parametrize("name", ["", "   ", "x" * 61, "a\x00b", "team"])
def test_odd_names_of_groups_are_refused(admin: User, name: str) -> None:
    groups.group_create(name="team")
    assert as_(admin).post("/groups", {"name": name}).status_code == 422
    assert Group.objects.count() == 1


def test_removing_a_group_leaves_people_and_makes_its_runs_private(
    admin: User, user: User, make_user: Make, make_run: Any
) -> None:
    from webui.runs.access import runs_readable
    from webui.runs.sharing import run_share

    mate, team, run = make_user("mate"), groups.group_create(name="team"), make_run()
    groups.group_add(group=team, user=user)
    groups.group_add(group=team, user=mate)
    run_share(run=run, caller=by_session(user), visibility="groups", groups=[team.pk])
    assert runs_readable(by_session(mate)).exists()
    assert as_(admin).post(f"/groups/{team.pk}/rename", {"name": "crew"}).status_code == 302
    assert as_(admin).post(f"/groups/{team.pk}/remove").status_code == 302
    assert not runs_readable(by_session(mate)).exists()
    assert User.objects.filter(username__in=["ada", "mate"]).count() == 2


# --- from the shell --------------------------------------------------------------------------------------------------


def command(*words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("user", *words, stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_roles_groups_and_limits_from_the_shell(admin: User) -> None:
    made = command("create", "bob", "--role", "viewer", "--group", "night class", "--quota", "active_runs=2")
    assert (made["role"], made["groups"]) == ("viewer", ["night class"])
    changed = command("change", "bob", "--role", "instructor", "--no-group", "night class", "--quota", "active_runs=")
    assert (changed["role"], changed["groups"], changed["password"]) == ("instructor", [], None)
    bob = User.objects.get(username="bob")
    assert bob.quota.active_runs is None
    command("close", "bob")
    command("open", "bob")
    bob.refresh_from_db()
    assert bob.is_active
    for words in (
        ("create", "eve", "--quota", "runs=2"),
        ("change", "bob", "--no-group", "night class"),
        ("change", "root", "--role", "viewer"),
    ):
        with pytest.raises(CommandError):
            command(*words)
    assert not User.objects.filter(username="eve").exists()  # whole or not at all
