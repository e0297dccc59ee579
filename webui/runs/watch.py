"""One look at a run's row for all pages that show it: however many look on, the database is asked twice a second.

A watch lives while somebody holds it and ends with the last one. What a page may see is not decided here: the facts
are those that every reader of the run may know, and whether somebody is one is the stream's to ask.
"""

# mypy: disable-error-code="no-untyped-call"
# channels has no types of its own.
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from channels.db import database_sync_to_async

from webui.runs.facts import run_facts
from webui.runs.models import Run

EVERY_S = 0.5


class Watch:
    """The row of one run, as it was at most half a second ago."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.holders = 0
        self._facts: dict[str, Any] | None = None
        self._fault: Exception | None = None
        self._looked = asyncio.Event()
        self._task = asyncio.create_task(self._look_again_and_again())

    async def facts(self) -> dict[str, Any] | None:
        """What `run_facts` says; the same object while nothing has changed. None once the row is gone.

        Raises what the database raised at the last look.
        """
        await self._looked.wait()
        if self._fault is not None:
            raise self._fault
        return self._facts

    async def _look_again_and_again(self) -> None:
        while True:
            try:
                found = await database_sync_to_async(_look)(self.run_id)
                self._facts, self._fault = (self._facts if found == self._facts else found), None
            except Exception as fault:  # noqa: BLE001  # raised by `facts` in each page that holds this
                self._fault = fault
            self._looked.set()
            await asyncio.sleep(EVERY_S)

    async def end(self) -> None:
        """Nobody looks on any more."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def _look(run_id: str) -> dict[str, Any] | None:
    run = Run.objects.select_related("owner").filter(pk=run_id).first()
    return None if run is None else run_facts(run)


watches: dict[str, Watch] = {}
"""By run, those that somebody holds. Of this process's one event loop."""


@contextlib.asynccontextmanager
async def watched(run_id: str) -> AsyncIterator[Watch]:
    """The run's watch, shared with everybody who holds it now."""
    watch = watches.get(run_id)
    if watch is None:
        watch = watches[run_id] = Watch(run_id)
    watch.holders += 1
    try:
        yield watch
    finally:
        watch.holders -= 1
        if not watch.holders:
            del watches[run_id]
            await watch.end()
