"""People of every kind, what is theirs, and how each of them asks: for test_access.py."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.webui.access_table import SESSIONS
from tests.webui.conftest import SMALL
from webui.accounts.models import ApiToken, Quota, User
from webui.accounts.roles import Scope
from webui.accounts.services import token_create
from webui.benches.models import Bench, Lease
from webui.hooks.models import Delivery, Webhook
from webui.runs.models import Run

MARK = "zqxj"
"""In everything that is the owner's and private; nobody else's answer may hold it."""
NOT_THERE = "20200101-000000-0a0b0c"
NUMBER_NOT_THERE = 987_654_321
ROLES = {"viewer": "viewer", "instructor": "instructor", "teacher": "instructor", "admin": "admin", "member": "viewer"}
TABLES = (User, Group, User.groups.through, Quota, ApiToken, Run, Run.groups.through, Bench, Lease, Webhook)


@dataclass
class World:
    """One of everything."""

    people: dict[str, User] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    words: dict[str, Any] = field(default_factory=dict)
    """What stands for each path argument; `there` of them names a thing of the owner's."""

    def ask(self, who: str, method: str, address: str, body: dict[str, Any] | None = None) -> Any:
        """One request, as the person, session or token `who`."""
        client = self.clients[who]
        kept = copy.deepcopy(client.cookies)
        answer = self._answer(who, method, address, body)
        client.cookies = kept  # signing out is undone with everything else
        answer.text_read = text_of(answer)
        for closer in answer._resource_closers:  # close() itself would end this test's connection
            closer()
        return answer

    def _answer(self, who: str, method: str, address: str, body: dict[str, Any] | None) -> Any:
        client, headers = self.clients[who], self.headers.get(who, {})
        if address.startswith("/api/") and method not in ("GET", "HEAD"):
            return client.generic(method, address, json_of(body), content_type="application/json", **headers)  # type: ignore[arg-type]
        if method in ("GET", "HEAD"):
            return getattr(client, method.lower())(address, **headers)
        body = {name: SMALL.read_text() if value == "@small" else value for name, value in (body or {}).items()}
        return client.post(address, body, **headers)

    def address(self, pattern: str, run: Run | str | None = None, **words: Any) -> str:
        """Of a row's key, with its arguments filled in; `run` for those that name one."""
        told = {**self.words, **words}
        if run is not None:
            told |= dict.fromkeys(("run_id", "a"), run)
        path = re.sub(r"<(?:[a-z]+:)?([a-z_]+)>|\{([a-z_]+)\}", lambda m: str(told[m[1] or m[2]]), pattern)
        return path if path.startswith("/") else f"/{path}"

    def state(self) -> str:
        """Everything that a request could change for others."""
        return "\n".join(repr(row) for table in TABLES for row in table.objects.order_by("pk").values_list())


def json_of(body: dict[str, Any] | None) -> str:
    """What the API is sent."""
    return "" if body is None else json.dumps(body)


def text_of(answer: Any) -> str:
    """Of an answer, also of one that is streamed."""
    if not answer.streaming:
        return str(answer.content.decode("utf-8", "replace"))
    if answer.is_async:

        async def whole() -> bytes:
            return b"".join([part async for part in answer.streaming_content])

        return async_to_sync(whole)().decode("utf-8", "replace")
    return b"".join(answer.streaming_content).decode("utf-8", "replace")


def make_world(put_run: Callable[[str], Path], spec: str) -> World:
    """Everybody, and what the owner has."""
    world = World()
    for name in sorted(SESSIONS):
        user = User(username=name if name != "owner" else f"owner-{MARK}", role=ROLES.get(name, "runner"))
        user.set_password("correct-horse-9")
        user.save()
        world.people[name] = user
        client = Client(raise_request_exception=False)
        client.force_login(user)
        world.clients[name] = client
    world.clients["stranger"] = Client(raise_request_exception=False)
    owner = world.people["owner"]
    for who, person, scopes in (
        *((f"owner-{scope}", owner, [scope]) for scope in Scope),
        *((f"admin-{scope}", world.people["admin"], [scope]) for scope in Scope),
        ("viewer-run", world.people["viewer"], [Scope.RUN]),
        ("expired", owner, list(Scope)),
    ):
        _with_token(world, who, person, scopes)
    theirs, shared = Group.objects.create(pk=70_121, name=f"class-{MARK}"), Group.objects.create(name="team")
    theirs.user_set.add(owner, world.people["teacher"])
    shared.user_set.add(world.people["member"])
    for name, visibility in (("private", "private"), ("grouped", "groups"), ("open", "everyone"), ("own", "everyone")):
        world.runs[name] = _finished(world, name, visibility, spec, put_run)
    world.runs["grouped"].groups.add(shared)
    _belongings(world, owner)
    world.words |= {
        "run_id": world.runs["private"].pk, "a": world.runs["private"].pk, "b": world.runs["own"].pk, "form": "csv",
        "group_id": theirs.pk, "name": owner.username, "number": "0123456789abcdef",
    }  # fmt: skip
    return world


def _with_token(world: World, who: str, person: User, scopes: list[Scope]) -> None:
    name = f"{who} {MARK}" if person.username.endswith(MARK) else who
    token, secret = token_create(user=person, name=name, scopes=scopes)
    # Its use is noted once a minute; here it is never due, so that a refused request changes nothing at all.
    ApiToken.objects.filter(pk=token.pk).update(
        id=70_200 + token.pk,
        last_used_at="2099-01-01T00:00Z",
        expires_at="2020-01-01T00:00Z" if who == "expired" else "2099-01-01T00:00Z",
    )
    world.clients[who] = Client(raise_request_exception=False)
    world.headers[who] = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}


def _finished(world: World, name: str, visibility: str, spec: str, put_run: Callable[[str], Path]) -> Run:
    """A run with a folder. `own` is everybody's to read; the other three are the owner's."""
    run_id = f"20260101-00000{len(world.runs)}-{len(world.runs):02d}cafe"
    put_run(run_id)
    is_marked = name == "private"
    return Run.objects.create(
        id=run_id,
        question=f"Is it {MARK} or not?" if is_marked else f"Is it {name}?",
        tags=[MARK] if is_marked else [],
        overrides=[f"seed={MARK}"] if is_marked else [],
        experiment="blink/small" if is_marked else "",
        detail=f"because of {MARK}" if is_marked else "",
        summary={"systems": {"blink": {"ttft_ms": {"p50": 7654.3}}}} if is_marked else {},
        backend="sim",
        spec=f"# {MARK}\n{spec}" if is_marked else spec,
        owner=world.people["runner" if name == "own" else "owner"],
        visibility=visibility,
        state="finished",
        outcome="passed",
        created_at="2026-01-01T00:00Z",
    )


def _belongings(world: World, owner: User) -> None:
    bench = Bench.objects.create(name="bench-1", health="well")
    lease = Lease.objects.create(bench=bench, holder=owner, purpose="a class", ends_at="2099-01-01T00:00Z")
    hook = Webhook.objects.create(
        pk=70_122, owner=owner, url=f"https://{MARK}.example/", secret=MARK, events=["run.finished"]
    )
    told = Delivery.objects.create(pk=70_123, webhook=hook, run=world.runs["private"], event="run.finished", body=MARK)
    world.words |= {
        "token_id": owner.tokens.filter(name__startswith="owner-read").get().pk,
        "lease_id": lease.pk,
        "hook_id": hook.pk,
        "delivery_id": told.pk,
    }


def routes(patterns: list[Any] | None = None, before: str = "") -> Iterator[str]:
    """Every address of the resolver but those of the API, which its schema has."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        path = before + str(one.pattern)
        if isinstance(one, URLResolver):
            if not path.startswith("api/"):
                yield from routes(one.url_patterns, path)
        else:
            assert isinstance(one, URLPattern)
            yield path


class Undone:
    """What happens within is rolled back."""

    def __enter__(self) -> None:
        self._mark = connection.savepoint()

    def __exit__(self, *_: object) -> None:
        connection.savepoint_rollback(self._mark)
