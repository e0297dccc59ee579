from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from webui.accounts import services
from webui.accounts.models import User
from webui.audit import views
from webui.audit.deeds import Deed
from webui.audit.models import Entry
from webui.audit.services import note

pytestmark = pytest.mark.django_db


@pytest.fixture
def as_admin(make_user: Callable[..., User]) -> Client:
    client = Client()
    client.force_login(make_user("root", role="admin"))
    return client


def rows(client: Client, query: str = "") -> list[dict[str, str]]:
    answer = client.get(f"/audit.csv?{query}")
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_sign_in_and_out_are_written_with_address_and_name(client: Client, user: User, as_admin: Client) -> None:
    client.post("/login", {"username": "ada", "password": "wrong"})
    client.post("/login", {"username": "hunter2-my-password", "password": "wrong"})
    client.post("/login", {"username": "ada", "password": "correct-horse-9"})
    client.post("/logout")
    told = [(row["who"], row["deed"], row["thing"], row["address"]) for row in rows(as_admin, "deed=session")]
    assert told == [
        ("ada", "session.close", "ada", "127.0.0.1"),
        ("ada", "session.open", "ada", "127.0.0.1"),
        ("console", "session.refuse", "", "127.0.0.1"),
        ("console", "session.refuse", "ada", "127.0.0.1"),
    ]
    assert "hunter2" not in json.dumps(list(Entry.objects.values()), default=str)


def test_a_deed_by_token_names_the_token_and_never_its_secret(client: Client, user: User) -> None:
    token, secret = services.token_create(user=user, name="ci")
    client.delete(f"/api/v1/tokens/{token.pk}", HTTP_AUTHORIZATION=f"Bearer {secret}")
    entry = Entry.objects.get(deed="token.revoke")
    assert entry.who == f"ada ({token.start}…)"
    assert secret not in json.dumps(list(Entry.objects.values()), default=str)


def test_each_filter_narrows_and_odd_ones_are_dropped(as_admin: Client, user: User) -> None:
    for number in range(4):
        note(Deed.RUN_START, f"run-{number}", by=user)
    note(Deed.RUN_CANCEL, "run-1", by=user, reason="tired")
    old = Entry.objects.filter(thing="run-0")
    old.update(at=timezone.now() - timedelta(days=3))
    hour = (timezone.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    for query, count in (
        ("deed=run.start", 4),
        ("deed=run", 5),
        ("thing=run-1", 2),
        ("person=ada", 5),
        ("person=ad", 0),
        (f"deed=run&since={hour}", 4),
        (f"deed=run&until={hour}", 1),
        ("deed=run&since=yesterday&until=9999-99-99T99:99", 5),
        ("deed=run&deed=nonsense", 5),
        ("deed=run&thing=%00", 5),
    ):
        assert len(rows(as_admin, query)) == count, query
        page = as_admin.get(f"/audit?{query}").content.decode()
        assert page.count('<td class="when') + page.count('<td class="mut when') == count, query


def test_pages_follow_each_other_without_gap_or_double(as_admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PAGE", 7)
    for number in range(30):
        note(Deed.RUN_START, f"run-{number}")
    seen: list[str] = []
    address = "/audit?deed=run"
    while address:
        page = as_admin.get(address).content.decode()
        seen += [part.split("<")[0] for part in page.split("<td>run-")[1:]]
        after: Any = page.split("before=")[1].split('"')[0] if "before=" in page else ""
        address = f"/audit?deed=run&before={after}" if after else ""
    assert seen == [str(number) for number in reversed(range(30))]
    assert as_admin.get("/audit?before=x").status_code == 200


def test_names_are_text_in_html_and_in_spreadsheets(as_admin: Client) -> None:
    note(Deed.BENCH_CHANGE, "<script>alert(1)</script>", tags=["=HYPERLINK(1)"])
    note(Deed.BENCH_CHANGE, "=cmd|' /C calc'!A0")
    page = as_admin.get("/audit").content.decode()
    assert "<script>alert" not in page
    assert {row["thing"][:2] for row in rows(as_admin, "deed=bench")} == {"<s", "'="}
