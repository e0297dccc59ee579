"""No unsafe address takes a session's request without the CSRF token, and each takes it with one.

The access matrix asks without these checks, so that it sees who may do what; here everybody may, and the token alone
decides. Every POST of the pages and every unsafe operation of the API, from the tables of that matrix.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.webui.access_table import API, CHANGERS, PAGES, SESSIONS, Row
from tests.webui.access_world import Undone, World, make_world
from tests.webui.conftest import SMALL

pytestmark = pytest.mark.django_db

SAFE = ("GET", "HEAD")
FAILED = ("This page was too old", "A session needs its X-CSRFToken header for this")
"""What pages and the API say: for other refusals they have other words."""
UNSAFE = sorted(key for key in (*PAGES, *API) if key.split(" ", 1)[0] not in SAFE)


@pytest.fixture
def world(db: None, put_run: Callable[[str], Path], sent: list[str]) -> World:
    return make_world(put_run, SMALL.read_text())


def one_who_may(row: Row) -> str:
    """By session; the owner where the table only says that those who may change a run may."""
    if row.ok == CHANGERS:
        return "owner"
    assert isinstance(row.ok, frozenset)
    return next(who for who in ("owner", "admin", *sorted(SESSIONS)) if who in row.ok)


class Door:
    """People whose requests are checked, each with the token of a form that they have open."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._clients: dict[str, tuple[Client, str]] = {}
        for who in {who for _, _, who in asked()}:
            client = Client(enforce_csrf_checks=True, raise_request_exception=False)
            client.force_login(world.people[who])
            assert client.get("/account").status_code == 200
            self._clients[who] = client, client.cookies["csrftoken"].value

    def ask(self, who: str, key: str, row: Row, *, with_token: bool) -> Any:
        """The row's request."""
        client, token = self._clients[who]
        kept = copy.deepcopy(client.cookies)
        method, pattern = key.split(" ", 1)
        run = self.world.runs["private"].pk if row.ok == CHANGERS else None
        address = self.world.address(row.asked(pattern), run, **row.words)
        headers = {"X-CSRFToken": token} if with_token else {}
        kind, body = ("application/json", "{}") if " /api/" in key else ("application/x-www-form-urlencoded", "")
        answer = client.generic(method, address, body, content_type=kind, headers=headers)
        client.cookies = kept  # signing out is undone with everything else
        return answer


def is_refused_for_that(answer: Any) -> bool:
    """Whether the token was what the request lacked."""
    return answer.status_code == 403 and any(words in answer.content.decode() for words in FAILED)


def asked() -> Iterator[tuple[str, Row, str]]:
    """Every unsafe address with one who may use it."""
    for key in UNSAFE:
        row = PAGES.get(key) or API[key]
        yield key, row, one_who_may(row)


def test_the_tables_have_unsafe_addresses_of_both_kinds() -> None:
    assert len([key for key in UNSAFE if " /api/" not in key]) > 25
    assert len([key for key in UNSAFE if " /api/" in key]) > 10


def test_without_the_token_every_one_is_refused_and_nothing_happens(world: World) -> None:
    door, before, wrong = Door(world), world.state(), []
    for key, row, who in asked():
        with Undone():
            answer = door.ask(who, key, row, with_token=False)
            if not is_refused_for_that(answer):
                wrong.append(f"{key} as {who}: {answer.status_code}")
            if world.state() != before:
                wrong.append(f"{key} as {who}: it had an effect")
    assert not wrong, "\n".join(wrong)


def test_with_the_token_none_is_refused_for_that(world: World) -> None:
    """Or the test before would pass where nobody may do anything at all."""
    door, wrong = Door(world), []
    for key, row, who in asked():
        with Undone():
            answer = door.ask(who, key, row, with_token=True)
            if answer.status_code in (401, 403) or answer.status_code >= 500:
                wrong.append(f"{key} as {who}: {answer.status_code}")
    assert not wrong, "\n".join(wrong)


def test_signing_in_needs_it_too(world: World) -> None:
    """Otherwise a page elsewhere could sign somebody in as somebody else."""
    client = Client(enforce_csrf_checks=True)
    told = {"username": "runner", "password": "correct-horse-9"}
    assert client.post("/login", told).status_code == 403
    client.get("/login")
    token = client.cookies["csrftoken"].value
    assert client.post("/login", told, headers={"X-CSRFToken": token}).status_code == 302
