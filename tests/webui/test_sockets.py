"""Websockets by caller: who may open one, and that it closes when the right to it goes (known fault F9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import Group
from django.db import connections
from django.test import Client

from tests.webui.access_table import READS_RUN, SESSIONS
from tests.webui.access_world import NOT_THERE, World, make_world
from tests.webui.conftest import SMALL
from webui.accounts import groups, services
from webui.accounts.callers import by_session
from webui.accounts.models import User
from webui.accounts.roles import Role
from webui.asgi import application
from webui.runs.models import Run
from webui.runs.sharing import run_share

pytestmark = pytest.mark.django_db(transaction=True)

SIGNED_OUT, NO_SUCH_RUN = 4401, 4404
SOON_S = 30.0
"""Rights are asked for again every 2 s; the rest is for a busy machine."""


class Socket(ApplicationCommunicator):
    """A page's end of a websocket."""

    async def opens(self) -> bool:
        """Whether the server takes it."""
        await self.send_input({"type": "websocket.connect"})
        return str((await self.receive_output(SOON_S))["type"]) == "websocket.accept"

    async def leave(self) -> None:
        """The page goes."""
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(SOON_S)


def socket_of(client: Client, run_id: str, origin: bytes = b"http://localhost") -> Socket:
    """The page's own socket: its cookies, its origin."""
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    headers = [(b"origin", origin), (b"host", b"localhost"), (b"cookie", cookies.encode())]
    path = f"/ws/runs/{run_id}"
    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
    return Socket(application, scope | {"subprotocols": []})


async def end_of(socket: Socket) -> int:
    """The code that the server closes with; answers what comes before it. Raises TimeoutError if it never does."""
    async with asyncio.timeout(2 * SOON_S):
        while True:
            message = await socket.receive_output(SOON_S)
            if message["type"] == "websocket.close":
                return int(message.get("code") or 1000)
            if message.get("bytes"):
                await socket.send_input({"type": "websocket.receive", "text": "a"})


@pytest.fixture
def world(put_run: Callable[[str], Path], sent: list[str]) -> World:
    world = make_world(put_run, SMALL.read_text())
    # Under way, as far as the row says: a live page of it stays open until somebody ends it.
    Run.objects.update(state="running", outcome="", lease_until="2099-01-01T00:00Z", origin="console")
    return world


def test_each_caller_opens_the_sockets_of_the_runs_that_they_read(world: World) -> None:
    wrong: list[str] = []

    async def look(who: str, kind: str, run_id: str, may: bool) -> None:
        socket = socket_of(world.clients[who], run_id)
        opened = await socket.opens()
        if who == "stranger":
            outcome = "refused" if not opened else "opened"
            due = "refused"
        else:
            first = await socket.receive_output(SOON_S)
            outcome = "reads" if first["type"] == "websocket.send" else str(first.get("code"))
            due = "reads" if may else str(NO_SUCH_RUN)
        if outcome != due:
            wrong.append(f"{who} on {kind}: {outcome}, due {due}")
        await socket.leave()

    async def everybody() -> None:
        runs = {kind: world.runs[kind].pk for kind in READS_RUN} | {"none": NOT_THERE}
        looks = [
            look(who, kind, run_id, who in READS_RUN.get(kind, ()))
            for who in sorted(SESSIONS | {"stranger"})
            for kind, run_id in runs.items()
        ]
        await asyncio.gather(*looks)
        await sync_to_async(connections.close_all)()

    asyncio.run(everybody())
    assert not wrong, wrong


def test_a_socket_needs_the_consoles_own_origin(world: World) -> None:
    async def elsewhere() -> bool:
        opened = await socket_of(world.clients["owner"], world.runs["own"].pk, b"https://evil.example").opens()
        await sync_to_async(connections.close_all)()
        return opened

    assert asyncio.run(elsewhere()) is False


def test_rights_withdrawn_close_open_sockets(world: World, make_user: Callable[..., User]) -> None:
    """Known fault F9, each way in which somebody can lose a run, with its page open."""
    owner, team = world.people["owner"], Group.objects.get(name="team")
    people = {name: make_user(name) for name in ("closed", "reset", "ended", "signs-out", "dropped", "stays")}
    people["demoted"] = make_user("demoted", role="admin")
    team.user_set.add(people["dropped"])
    clients = {name: Client() for name in people}
    for name, client in clients.items():
        client.force_login(people[name])
    private, grouped, open_to_all, own = (world.runs[kind] for kind in ("private", "grouped", "open", "own"))
    run_of = {"demoted": private, "dropped": grouped, "unshared": open_to_all}
    watch: dict[str, Socket] = {name: socket_of(client, run_of.get(name, own).pk) for name, client in clients.items()}
    watch["unshared"] = socket_of(clients["stays"], open_to_all.pk)

    def withdraw() -> None:
        services.user_close(user=people["closed"])
        services.user_reset_password(user=people["reset"])
        services.session_end_all(user=people["ended"])
        clients["signs-out"].post("/logout")
        services.user_change_role(user=people["demoted"], role=Role.VIEWER)
        groups.group_drop(group=team, user=people["dropped"])
        run_share(run=open_to_all, caller=by_session(owner), visibility="private")

    async def follow() -> dict[str, Any]:
        for socket in watch.values():
            assert await socket.opens()
        await sync_to_async(withdraw)()
        losing = [name for name in watch if name != "stays"]
        codes = await asyncio.gather(*(end_of(watch[name]) for name in losing))
        while not watch["stays"].output_queue.empty():
            assert (await watch["stays"].receive_output(SOON_S))["type"] == "websocket.send"
        await watch["stays"].leave()
        await sync_to_async(connections.close_all)()
        return dict(zip(losing, codes, strict=True))

    assert asyncio.run(follow()) == {
        "closed": SIGNED_OUT,
        "reset": SIGNED_OUT,
        "ended": SIGNED_OUT,
        "signs-out": SIGNED_OUT,
        "demoted": NO_SUCH_RUN,
        "dropped": NO_SUCH_RUN,
        "unshared": NO_SUCH_RUN,
    }
