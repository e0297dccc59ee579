"""The live stream of one run over a websocket: the run's own event lines, unparsed, from a cursor on.

Every 100 ms what the log has gained is sent as one binary frame: a first line `{"cursor": …}`, the reader's place
after the frame, then whole event lines. The page answers each frame with the text `a`; at most eight may be
unanswered, so a slow page slows only itself (design/console.md §2). Text frames carry `{"run": …}` when the row
changes and `{"end": …}` after the last event. A page that reconnects with its last cursor misses and repeats nothing.

Nothing is kept here and nothing is broadcast: news that is lost is read again from the log.
"""

# mypy: disable-error-code="no-untyped-call"
# channels has no types of its own.
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from testbed.events.log import BadCursor, Cursor, tail_bytes
from webui.accounts.callers import by_session
from webui.accounts.models import User
from webui.accounts.selectors import session_user
from webui.outages import DATABASE_AWAY, SOCKET_CODE, WORDS, is_outage
from webui.runs.facts import run_facts
from webui.runs.folder import trial_folder
from webui.runs.selectors import run_get

logger = logging.getLogger(__name__)

TICK_S = 0.1
ROW_EVERY_TICKS = 5
WHO_EVERY_TICKS = 20
"""How often the session is asked for again: an account that is closed loses its live pages within two seconds."""
CHUNK_BYTES = 256 * 1024
WINDOW = 8

SIGNED_OUT = 4401
NO_SUCH_RUN = 4404
BAD_REQUEST = 4400


class RunStream(AsyncWebsocketConsumer):
    """One page's view of one run."""

    async def connect(self) -> None:
        """Refuses strangers before the handshake; accepts, then says what is wrong with the rest."""
        self._pump: asyncio.Task[None] | None = None
        self._credit = asyncio.Semaphore(WINDOW)
        self._unanswered = 0
        self._session_key: str | None = self.scope["session"].session_key
        try:
            user = await self._person()
        except DATABASE_AWAY:  # accepted to be told why: a refused handshake carries no words
            await self.accept()
            await self.close(SOCKET_CODE, WORDS)
            return
        if user is None:
            await self.close()
            return
        await self.accept()
        query = parse_qs(self.scope["query_string"].decode("ascii", "replace"))
        run_id = self.scope["url_route"]["kwargs"]["run_id"]
        run = await database_sync_to_async(run_get)(run_id=run_id, caller=by_session(user))
        if run is None:
            await self.close(NO_SUCH_RUN)
            return
        try:
            cursor = Cursor.parse(query.get("cursor", [""])[0])
            trial = query.get("trial", [""])[0]
            trial_folder(run.pk, trial)
        except (BadCursor, ValueError):
            await self.close(BAD_REQUEST)
            return
        self._pump = asyncio.create_task(self._guarded(run.pk, trial, cursor))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """An answered frame gives its credit back; a page that answers more than it was sent gains nothing."""
        if text_data == "a" and self._unanswered > 0:
            self._unanswered -= 1
            self._credit.release()

    async def disconnect(self, code: int) -> None:
        """Ends the reading; the run does not notice."""
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump

    async def _guarded(self, run_id: str, trial: str, cursor: Cursor) -> None:
        try:
            await self._pump_events(run_id, trial, cursor)
        except asyncio.CancelledError:
            raise
        except Exception as fault:
            if is_outage(fault):
                await self.close(SOCKET_CODE, WORDS)
                return
            logger.exception("the stream of run %s broke off", run_id)
            await self.close(1011)

    async def _pump_events(self, run_id: str, trial: str, cursor: Cursor) -> None:
        sent: dict[str, Any] = {}
        user = await self._person()
        ticks = 1
        while True:
            if ticks % WHO_EVERY_TICKS == 0:
                user = await self._person()
            if user is None:
                await self.close(SIGNED_OUT)
                return
            if not sent or ticks % ROW_EVERY_TICKS == 0:
                facts = await self._facts(run_id, user)
                if facts is None:
                    await self.close(NO_SUCH_RUN)
                    return
                if facts != sent:
                    sent = facts
                    await self.send(text_data=json.dumps({"run": facts}))
            ticks += 1
            # Asked before the read that has to see the last line: the row is finished only after the log is.
            finished = sent["state"] == "finished"
            cursor = await self._send_news(run_id, trial, cursor)
            if finished:
                await self.send(text_data=json.dumps({"end": {"cursor": str(cursor)}}))
                await self.close(1000)
                return
            await asyncio.sleep(TICK_S)

    async def _send_news(self, run_id: str, trial: str, cursor: Cursor) -> Cursor:
        """Sends all that the log has gained; waits for answers between frames."""
        events = trial_folder(run_id, trial) / "events"
        while True:
            found, after = tail_bytes(events, cursor, CHUNK_BYTES)
            if not found:
                return cursor
            await self._credit.acquire()
            self._unanswered += 1
            head = json.dumps({"cursor": str(after)}).encode() + b"\n"
            await self.send(bytes_data=head + b"".join(lines for _, lines in found))
            cursor = after

    async def _person(self) -> User | None:
        """Whose session this is, while it is good; None for a stranger."""
        user: User | None = await database_sync_to_async(session_user)(session_key=self._session_key)
        return None if user is None or user.one_time_password else user

    async def _facts(self, run_id: str, user: User) -> dict[str, Any] | None:
        """None too once the run is no longer theirs to read: its live page ends."""

        def look() -> dict[str, Any] | None:
            run = run_get(run_id=run_id, caller=by_session(user))
            return None if run is None else run_facts(run)

        facts: dict[str, Any] | None = await database_sync_to_async(look)()
        return facts
