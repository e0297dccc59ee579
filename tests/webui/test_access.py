"""The access matrix: every address, method and socket for a stranger, each role, the owner, members and tokens.

Known fault F12 and the issue's "nothing of another's is readable, listable or guessable".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.urls import resolve
from django.utils import timezone

from tests.webui.access_table import (
    API,
    CHANGES_RUN,
    EVERYBODY,
    OWNER,
    PAGES,
    READERS,
    READS_RUN,
    SESSIONS,
    SIGNED,
    SOCKETS,
    STRANGERS,
    TOKENS,
    Row,
)
from tests.webui.access_world import MARK, NOT_THERE, NUMBER_NOT_THERE, Undone, World, make_world, routes
from tests.webui.conftest import SMALL
from webui.api.api import api
from webui.benches.models import Bench, Lease
from webui.runs.exports import FORMATS
from webui.runs.folder import downloads_of
from webui.runs.models import Run
from webui.runs.routing import websocket_urlpatterns

pytestmark = pytest.mark.django_db

API_ROOT = "/api/v1/runs"
HOW = "Add a row to {table} in tests/webui/access_table.py (its head says how) for: {missing}"


@pytest.fixture
def world(db: None, put_run: Callable[[str], Path], sent: list[str]) -> World:
    return make_world(put_run, SMALL.read_text())


# --- nothing is forgotten --------------------------------------------------------------------------------------------


def operations() -> set[str]:
    """`METHOD /path` of the API's schema, and what it serves beside that."""
    found = {"GET /api/v1/openapi.json"}
    for path, methods in api.get_openapi_schema()["paths"].items():
        found |= {f"{method.upper()} {path}" for method in methods}
    return found


def test_every_page_has_a_row() -> None:
    covered = {key.split(" ", 1)[1] for key in PAGES}
    missing = sorted(set(routes()) - covered)
    assert not missing, HOW.format(table="PAGES", missing=missing)
    gone = sorted(covered - set(routes()))
    assert not gone, f"These rows of PAGES have no address any more: {gone}"


def test_every_operation_of_the_api_has_a_row() -> None:
    missing = sorted(operations() - set(API))
    assert not missing, HOW.format(table="API", missing=missing)
    gone = sorted(set(API) - operations())
    assert not gone, f"These rows of API have no operation any more: {gone}"


def test_every_socket_has_a_row() -> None:
    assert {str(one.pattern) for one in websocket_urlpatterns} == set(SOCKETS), HOW.format(table="SOCKETS", missing="")


def test_no_page_takes_a_method_that_has_no_row(world: World) -> None:
    """What is not in the table is not there: 405, also for an admin."""
    wrong = []
    for path in routes():
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if f"{method} {path}" in PAGES:
                continue
            row = next(row for key, row in PAGES.items() if key.split(" ", 1)[1] == path)
            with Undone():
                answer = world.clients["admin"].generic(method, world.address(path, **row.words))
            if answer.status_code != 405 and not (path in ("", "login", "logout") and answer.status_code in (302, 410)):
                wrong.append(f"{method} {path}: {answer.status_code}")
    assert not wrong, f"refuse these (405), or give them a row: {wrong}"


# --- who gets what ---------------------------------------------------------------------------------------------------


FEW = frozenset({"viewer", "owner", "runner", "viewer-run", "owner-read"})
"""Those who ask for what is slow and theirs; `--soak` lets everybody ask."""


def asked(
    table: dict[str, Row], actors: frozenset[str], *, all_of_them: bool
) -> Iterator[tuple[str, Row, str, str | None, bool]]:
    """Key, row, who, which run, and whether they may. What somebody may not have is always asked for."""
    for key, row in table.items():
        for who in sorted(actors):
            if row.is_slow and not all_of_them and who not in FEW and who in row.ok:
                continue
            if isinstance(row.ok, frozenset):
                yield key, row, who, None, who in row.ok
                continue
            theirs = [kind for kind, readers in READS_RUN.items() if who in readers]
            may = theirs if row.ok == READERS or who in CHANGES_RUN else []
            # Of the runs that they may have the most private one, and all that they may not.
            first = may[:1] if all_of_them or not row.is_slow or who in FEW else []
            for kind in [*first, *(kind for kind in READS_RUN if kind not in may)]:
                yield key, row, who, kind, kind in may


def fault_of(world: World, before: str, key: str, row: Row, who: str, kind: str | None, may: bool) -> str | None:
    """What is wrong about the answer, if anything; `before` is the world's state."""
    method, pattern = key.split(" ", 1)
    address = world.address(row.asked(pattern), world.runs[kind].pk if kind else None, **row.words)
    answer = world.ask(who, method, address, row.body)
    status = answer.status_code
    to_door = status == 302 and answer.headers["Location"].startswith("/login?next=")
    said = f"{key} as {who}{f' on the {kind} run' if kind else ''}: {status}"
    if status >= 500:
        return f"{said}, broken"
    if may:
        return f"{said}, refused" if status in (401, 403, 404, 405, 429) or to_door else None
    if method not in ("GET", "HEAD") and before != world.state():
        return f"{said}, but it had an effect"
    if who in STRANGERS:
        due = row.stranger or (401 if pattern.startswith("/api/") else 302)
        return None if status == due and (due != 302 or to_door or row.stranger) else f"{said}, due {due}"
    # One who reads the run is told that they may not change it; for others there is no such run.
    due_here = (404,) if kind and who not in READS_RUN[kind] else row.refused
    return None if status in due_here else f"{said}, due {due_here}"


@pytest.mark.parametrize("part", ["pages", "api by session", "api by token"])
def test_everybody_gets_what_is_theirs_and_nothing_else(world: World, part: str, soak: bool) -> None:
    table = PAGES if part == "pages" else API
    actors = TOKENS if part == "api by token" else SESSIONS | {"stranger"}
    wrong, before = [], world.state()
    for key, row, who, kind, may in asked(table, actors, all_of_them=soak):
        with Undone():
            fault = fault_of(world, before, key, row, who, kind, may)
        if fault:
            wrong.append(fault)
    assert not wrong, "\n".join([f"{len(wrong)} of the matrix:", *wrong])


def evidence(run: str) -> list[str]:
    """Every file that the run has left and every form that it can be exported in, by page and by API."""
    names = [one.path for one in downloads_of(run)]
    assert {Path(name).suffix for name in names} >= {".html", ".json", ".toml", ".jsonl"}
    page, api = f"/runs/{run}", f"{API_ROOT}/{run}"
    files = [f"{page}/files/{name}" for name in names] + [f"{api}/artifacts/{name}" for name in names]
    forms = [f"{root}/export/{form}" for form in FORMATS for root in (page, api)]
    return [*files, *forms, f"{page}/archive", f"{api}/verdict", f"{api}/events"]


@pytest.mark.parametrize("kind", READS_RUN)
def test_every_file_and_export_is_its_readers_alone(world: World, kind: str) -> None:
    """The matrix asks for one of each, here for all. Of the readers the owner alone asks; others are in the matrix."""
    run, wrong = world.runs[kind].pk, []
    for address in evidence(run):
        is_api = address.startswith("/api/")
        for who in sorted(EVERYBODY - SESSIONS if is_api else SESSIONS | {"stranger"}):
            if who in READS_RUN[kind] and who not in ("owner", "owner-read"):
                continue
            status = world.ask(who, "GET", address).status_code
            due = 200 if who in READS_RUN[kind] else (401 if is_api else 302) if who in STRANGERS else 404
            if status != due:
                wrong.append(f"{address} as {who}: {status}, due {due}")
    assert not wrong, "\n".join(wrong)


UNDER_WAY = (
    ("POST", "/runs/{run}/cancel", {}),
    ("POST", "/runs/{run}/extend", {"minutes": 5}),
    ("POST", "/runs/chosen", {"act": "cancel", "run": "{run}"}),
    ("POST", "/runs/chosen", {"act": "tag", "tags": "mine", "run": "{run}"}),
    ("POST", "/api/v1/runs/{run}/cancel", None),
    ("POST", "/api/v1/runs/{run}/extend", {"minutes": 5}),
)


@pytest.mark.parametrize("case", range(len(UNDER_WAY)))
def test_who_only_reads_a_run_under_way_changes_nothing_of_it(world: World, case: int) -> None:
    """The runs of the matrix have ended, and of an ended run there is nothing to cancel or extend for anybody."""
    run, now = world.runs["open"], timezone.now()
    under_way = {"state": "running", "outcome": "", "finished_at": None, "lease_until": now}
    Run.objects.filter(pk=run.pk).update(**under_way, ends_by=now + timedelta(minutes=1))
    method, address, body = UNDER_WAY[case]
    address = address.format(run=run.pk)
    told = body and {name: str(value).format(run=run.pk) if name == "run" else value for name, value in body.items()}
    before, wrong = world.state(), []
    for who in sorted((SIGNED if address.startswith("/api/") else SESSIONS) | {"stranger"}):
        with Undone():
            status = world.ask(who, method, address, told).status_code
            changed = before != world.state()
        if changed != (who in CHANGES_RUN):
            wrong.append(f"{who}: {status}, {'changed' if changed else 'unchanged'}")
    assert not wrong, wrong


# --- nothing can be guessed ------------------------------------------------------------------------------------------


def shape(answer: Any, *ids: Any) -> tuple[int, str]:
    """Status and text of an answer, but for what was asked for and what differs every time."""
    text = answer.text_read
    for one in ids:
        text = text.replace(str(one), "ID")
    return answer.status_code, re.sub(r'value="[A-Za-z0-9]{64}"', "", text)


def test_what_is_anothers_answers_as_what_is_not_there(world: World) -> None:
    """By whole id and by label, for pages and API, for each who may not read it."""
    private, wrong = world.runs["private"], []
    for table in (PAGES, API):
        for key, row in table.items():
            method, pattern = key.split(" ", 1)
            if not isinstance(row.ok, str):
                continue
            for who in sorted((SIGNED if table is API else SESSIONS) - READS_RUN["private"]):
                answers = []
                for run in (private.pk, NOT_THERE):
                    with Undone():
                        told = world.ask(who, method, world.address(row.asked(pattern), run, **row.words), row.body)
                    answers.append(shape(told, run))
                address = world.address(row.asked(pattern), private.label, **row.words)
                with Undone():
                    by_label = world.ask(who, method, address, row.body)
                if answers[0] != answers[1] or by_label.status_code != 404:
                    wrong.append(f"{key} as {who}: {answers[0][0]}, {answers[1][0]}, by label {by_label.status_code}")
    assert not wrong, wrong


def test_numbers_of_anothers_things_answer_as_numbers_that_are_not_there(world: World) -> None:
    wrong = []
    for key, row in {**PAGES, **API}.items():
        method, pattern = key.split(" ", 1)
        # Leases are everybody's to see.
        named = [name for name in ("token_id", "hook_id", "group_id") if name in pattern]
        if not named or isinstance(row.ok, str):
            continue
        for who in ("runner", "instructor", "member", "viewer-run"):
            if who in TOKENS and not pattern.startswith("/api/"):
                continue
            answers = []
            for words in ({}, dict.fromkeys(named, NUMBER_NOT_THERE)):
                with Undone():
                    told = world.ask(who, method, world.address(pattern, **{**row.words, **words}), row.body)
                answers.append(shape(told, *({**world.words, **words}[name] for name in named)))
            if answers[0] != answers[1]:
                wrong.append(f"{key} as {who}: {[answer[0] for answer in answers]}")
    assert not wrong, "\n".join(wrong)


# --- nothing of another's is in any answer ---------------------------------------------------------------------------

OUTSIDERS = ("runner", "viewer", "instructor", "member", "viewer-run", "admin-read")
QUERIES = {
    "runs": ["text=zq", "text=cafe", "tag=zq", "before={private}", "mine=1", "experiment=blink/small", "owner={owner}",
             "state=finished", "outcome=passed", "run={private}", "runs={private}"],
    "runs/table": ["text=zq", "limit=50", "experiment=blink/small"],
    "runs/chosen": ["run={private}&run={own}", "runs={private},{own}"],
    "experiments": ["group=blink"],
    "experiments/new": ["from={private}", "from={label}"],
    "/api/v1/runs": ["text=zq", "before={private}", "cursor={private}", "mine=true", "tag=zq",
                     "experiment=blink/small"],
}  # fmt: skip


def addresses(world: World) -> Iterator[str]:
    """Every GET that names nothing of the owner's, and those that try to."""
    private, own = world.runs["private"], world.runs["own"]
    values = {"private": private.pk, "own": own.pk, "label": private.label, "owner": world.people["owner"].username}
    for key, row in {**PAGES, **API}.items():
        method, pattern = key.split(" ", 1)
        if method != "GET":
            continue
        yield world.address(row.asked(pattern), own.pk, **row.words)
        address = world.address(pattern, own.pk, **row.words)
        for query in QUERIES.get(pattern, []):
            yield f"{address}?{query.format(**values)}"


def test_nothing_of_anothers_is_in_any_answer(world: World) -> None:
    """Lists, search, cards' last answers, clones, filters, exports, error texts."""
    private, own = world.runs["private"], world.runs["own"]
    own.clone_of = private
    own.save()
    marks = [MARK, private.pk, private.label, "7654", "7,654"]
    wrong = []
    for who in OUTSIDERS:
        for address in addresses(world):
            if not address.startswith("/api/") and who in TOKENS:
                continue
            path, _, query = address.partition("?")
            if any(mark in path for mark in marks):
                continue  # asked for by name, above
            answer = world.ask(who, "GET", address)
            text = re.sub(r"csrf[^>]*>", "", answer.text_read)
            text = text.replace(f"owner-{MARK}", "")  # who has shared a run or holds a bench has a name
            for part in re.split(r"[=&,]", query):
                text = text.replace(part, "") if len(part) > 3 and MARK not in part[:-1] else text
            found = [mark for mark in marks if mark in text]
            if found:
                place = text.index(found[0])
                wrong.append(f"{address} as {who}: {found} in …{text[max(0, place - 60) : place + 40]}…")
    assert not wrong, "\n".join(wrong)


def test_a_queue_names_no_run_of_anothers(world: World) -> None:
    """Row by row: what a waiting run waits for is said without naming what its owner may not read."""
    now = timezone.now()
    Run.objects.filter(pk=world.runs["private"].pk).update(
        state="running", outcome="", backend="mininet", bench="bench-1", lease_until=now
    )
    Lease.objects.update(released_at=now)  # or the lease would be what it waits for, which names no run anyway
    Bench.objects.update(seen_at=now, abilities={"emulate": True, "simulate": True})
    waiting = Run.objects.create(
        id="20260202-000000-abcdef",
        question="When?",
        backend="mininet",
        spec=SMALL.read_text(),
        owner=world.people["runner"],
    )
    private = world.runs["private"]
    assert f"run {private.label} has bench" in world.ask("admin", "GET", f"/runs/{waiting.pk}/queue").text_read
    assert "a run of somebody else's has bench" in json.loads(
        world.ask("runner", "GET", f"/runs/{waiting.pk}/queue").text_read
    )["reason"]
    for address in (
        f"/runs/{waiting.pk}",
        f"/runs/{waiting.pk}/queue",
        f"/api/v1/runs/{waiting.pk}",
        "/api/v1/benches",
        "/api/v1/runs",
        "/api/v1/leases",
        "/runs",
        "/experiments",
    ):
        text = world.ask("runner", "GET", address).text_read
        assert private.label not in text, address
        assert MARK not in text.replace(f"owner-{MARK}", ""), address


def test_anothers_idempotency_key_is_ones_own_to_use(world: World) -> None:
    body = json.dumps({"experiment": "blink/small"})
    words = {"content_type": "application/json", "HTTP_IDEMPOTENCY_KEY": "build-1"}
    first = world.clients["owner"].post("/api/v1/runs", body, **words)  # type: ignore[arg-type]
    second = world.clients["runner"].post("/api/v1/runs", body, **words)  # type: ignore[arg-type]
    assert first.status_code == second.status_code == 202
    assert first.json()["id"] != second.json()["id"]
    other = world.clients["runner"].post("/api/v1/runs", json.dumps({"experiment": "blink/demo"}), **words)  # type: ignore[arg-type]
    assert other.status_code == 409
    assert first.json()["id"] not in other.content.decode()


def is_viewers(target: str) -> bool:
    """Whether a viewer may post there."""
    row = PAGES.get(f"POST {resolve(target.partition('?')[0]).route}")
    return row is not None and "viewer" in row.ok


def only_checks(world: World, target: str, page: str) -> bool:
    """Whether what is left of the launch form is to look at settings and plan: that is anybody's."""
    if 'value="start"' in page or 'value="check"' not in page:
        return False
    told = world.ask("viewer", "POST", target, {"do": "check", "spec": "@small", "on": "sim"})
    return told.status_code not in (401, 403, 404)


def is_open_to_viewers(target: str) -> bool:
    """Whether a link leads a viewer somewhere; addresses of single runs are as the run is shared."""
    path = target.partition("?")[0].partition("#")[0]
    if not path.startswith("/") or path.startswith(("/static/", "/api/")):
        return True
    row = PAGES.get(f"GET {resolve(path).route}")
    return row is None or row.ok == READERS or "viewer" in row.ok


def test_no_page_offers_a_viewer_what_they_may_not_do(world: World) -> None:
    """No form that would be refused, no link to one: each POST target of a viewer's pages is one of theirs."""
    wrong = []
    for key, row in PAGES.items():
        method, pattern = key.split(" ", 1)
        if method != "GET" or (isinstance(row.ok, frozenset) and "viewer" not in row.ok):
            continue
        address = world.address(row.asked(pattern), world.runs["open"].pk, **row.words)
        answer = world.ask("viewer", "GET", address)
        if not answer.headers.get("Content-Type", "").startswith("text/html"):
            continue
        page = answer.text_read
        for form in re.findall(r"<form[^>]*>", page):
            action = re.search(r'action="([^"]*)"', form)
            target = action[1] if action else (address if 'method="post"' in form else "")
            if 'method="post"' in form and not is_viewers(target or address) and not only_checks(world, target, page):
                wrong.append(f"{address}: form to {target}")
        links = re.findall(r'hx-(?:post|put|delete|patch)="([^"]+)"', page)
        wrong += [f"{address}: {link}" for link in links if not is_viewers(link)]
        followed = set(re.findall(r'<a [^>]*href="([^"]+)"', page))
        wrong += [f"{address}: link to {link}" for link in followed if not is_open_to_viewers(link)]
    assert not wrong, "\n".join(wrong)


assert OWNER <= SIGNED <= EVERYBODY
