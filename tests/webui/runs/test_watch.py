"""One look at a run's row for all its pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import OperationalError

from webui.runs import watch
from webui.runs.models import Run
from webui.runs.states import State

pytestmark = pytest.mark.django_db(transaction=True)


def test_pages_share_one_watch_and_it_ends_with_the_last(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(state=State.RUNNING, lease_owner="w")
    looks: list[str] = []
    look = watch._look

    def counted(run_id: str) -> dict[str, Any] | None:
        looks.append(run_id)
        return look(run_id)

    monkeypatch.setattr(watch, "_look", counted)
    monkeypatch.setattr(watch, "EVERY_S", 0.05)

    async def page(seen: list[Any]) -> None:
        async with watch.watched(run.pk) as held:
            seen.append(await held.facts())
            while (await held.facts()) is seen[0]:  # noqa: ASYNC110  # as a page does, tick by tick
                await asyncio.sleep(0.01)
            seen.append(await held.facts())

    async def several() -> list[list[Any]]:
        seen: list[list[Any]] = [[] for _ in range(10)]
        began = time.monotonic()
        pages = [asyncio.create_task(page(one)) for one in seen]
        while not all(seen) or len(looks) < 4:  # noqa: ASYNC110  # until every page has looked, several times
            await asyncio.sleep(0.05)
        assert len(watch.watches) == 1
        assert len(looks) <= (time.monotonic() - began) / watch.EVERY_S + 2, "ten pages cost as many looks as one"
        await sync_to_async(Run.objects.filter(pk=run.pk).update)(detail="news")
        await asyncio.gather(*pages)
        assert watch.watches == {}
        assert [task for task in asyncio.all_tasks() if "_look_again" in repr(task)] == []
        return seen

    for first, second in async_to_sync(several)():
        assert (first["detail"], second["detail"]) == ("", "news")


def test_a_row_that_goes_away_and_a_database_that_does_not_answer(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(state=State.RUNNING, lease_owner="w")
    monkeypatch.setattr(watch, "EVERY_S", 0.02)

    async def page() -> None:
        async with watch.watched(run.pk) as held:

            async def told() -> str:
                try:
                    facts = await held.facts()
                except OperationalError:
                    return "no answer"
                return "gone" if facts is None else str(facts["id"])

            async def is_told(words: str) -> None:
                while await told() != words:  # noqa: ASYNC110  # as a page does, tick by tick
                    await asyncio.sleep(0.01)

            await is_told(run.pk)
            with monkeypatch.context() as away:
                away.setattr(watch, "_look", lambda _: (_ for _ in ()).throw(OperationalError("away")))
                await is_told("no answer")
            await is_told(run.pk)
            await sync_to_async(Run.objects.filter(pk=run.pk).delete)()
            await is_told("gone")

    async_to_sync(page)()
