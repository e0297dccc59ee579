"""Run as a program on a console's database: fills it with so many runs, then opens the list as several people.

Prints `{"runs": N, "pages": {"ROLE ADDRESS": {"ms": [first, ...], "queries": n, "rows": n}}}`; milliseconds are
those of the whole page: view, queries, template.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from datetime import datetime, timedelta
from typing import Any

ADDRESSES = (
    "/runs", "/runs?text=no+such+words", "/runs?text=rareword", "/runs?text=neighbour",
    "/runs?tag=lab-2&outcome=failed",
    "/runs?owner=user7&fidelity=degraded", "/runs?state=active", "/runs?sort=ended", "/runs?sort=oldest&mine=1",
    "/runs?after={middle}",
)  # fmt: skip
QUESTIONS = ("Do tokens keep their pace while KV moves?", "What does a noisy neighbour cost?", "Which share is left?")
BLOCK = 2000


def main(number: int) -> None:
    """Fills and asks."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    call_command("migrate", verbosity=0)
    middle = fill(number)
    json.dump({"runs": number, "pages": ask(middle)}, sys.stdout)


def fill(number: int) -> str:
    """Rows of twenty people, a minute apart; the id of one in the middle."""
    from django.contrib.auth.models import Group
    from django.utils import timezone

    from webui.accounts.models import User
    from webui.runs.models import Run

    roles = {0: "admin", 1: "instructor"}
    people = [User.objects.create(username=f"user{n}", role=roles.get(n, "runner")) for n in range(20)]
    group = Group.objects.create(name="class-a")
    for one in people[1:6]:
        one.groups.add(group)
    chance, now = random.Random(6), timezone.now()
    begin = now - timedelta(minutes=number)
    summary = {"systems": {name: {"ttft_ms": {"p50": 1.5}, "pad": "x" * 900} for name in ("a", "b")}}
    ids = []
    for first in range(0, number, BLOCK):
        rows = [_row(Run, chance, people, begin, place, summary) for place in range(first, min(number, first + BLOCK))]
        moments = [row.created_at for row in rows]
        Run.objects.bulk_create(rows)
        for row, moment in zip(rows, moments, strict=True):
            row.created_at = moment  # auto_now_add has taken its own
        Run.objects.bulk_update(rows, ["created_at"], batch_size=250)
        ids += [row.pk for row in rows]
    return str(ids[len(ids) // 2])


def _row(model: Any, chance: random.Random, people: list[Any], begin: datetime, place: int, summary: Any) -> Any:
    moment = begin + timedelta(minutes=place)
    question = chance.choice(QUESTIONS) + (" rareword" if place == 77 else "")
    return model(
        id=f"{moment:%Y%m%d-%H%M%S}-{place:06x}", experiment=chance.choice(["blink/demo", "blink/small", ""]),
        question=question, backend=chance.choice(["sim", "mininet"]), systems=["a", "b"], seed=1, spec="# spec\n" * 200,
        owner=chance.choice(people), visibility=chance.choice(["private", "private", "groups", "everyone"]),
        state="finished", outcome=chance.choice(["passed", "failed"]), summary=summary,
        fidelity=chance.choice(["", "faithful", "degraded"]), tags=chance.choice([[], ["ci"], ["lab-2", "nightly"]]),
        created_at=moment, started_at=moment, finished_at=moment + timedelta(seconds=30),
    )  # fmt: skip


def ask(middle: str) -> dict[str, dict[str, Any]]:
    """Every address, five times, as an admin, an instructor and a runner."""
    from django.db import connection
    from django.test import Client

    from webui.accounts.models import User
    from webui.metering.counting import here

    # Its few seconds would end within a request whose queries are counted, on a machine that is slow enough.
    here._due = math.inf
    told: dict[str, dict[str, Any]] = {}
    for name in ("user0", "user1", "user9"):
        user = User.objects.get(username=name)
        client = Client(headers={"host": "127.0.0.1"})
        client.force_login(user)
        for address in ADDRESSES:
            counted: list[str] = []

            def count(execute: Any, sql: str, *rest: Any, counted: list[str] = counted) -> Any:
                counted.append(sql)
                return execute(sql, *rest)

            with connection.execute_wrapper(count):
                page = client.get(address.format(middle=middle)).content.decode()
            times = []
            for _ in range(5):
                begin = time.perf_counter()
                assert client.get(address.format(middle=middle)).status_code == 200
                times.append((time.perf_counter() - begin) * 1000)
            told[f"{user.role} {address}"] = {
                "ms": [round(one, 1) for one in times], "queries": len(counted), "rows": page.count("<tr id="),
            }  # fmt: skip
    return told


if __name__ == "__main__":
    main(int(sys.argv[1]))
