"""The live stream of one run over a websocket: the run's own event lines, unparsed, from a cursor on.

Every 100 ms what the log has gained is sent as one binary frame: a first line `{"cursor": …}`, the reader's place
after the frame, then whole event lines. The page answers each frame with the text `a`; at most eight may be
unanswered, so a slow page slows only itself (design/console.md §2). Text frames carry `{"run": …}` when the row
changes and `{"end": …}` after the last event. A page that reconnects with its last cursor misses and repeats nothing.

After five seconds without news an empty object says that the line still stands.

Nothing is kept here and nothing is broadcast: news that is lost is read again from the log. What several pages of one
run have in common, its row, is looked at once for all of them (`webui.runs.watch`).
"""

# mypy: disable-error-code="no-untyped-call"
# channels has no types of its own.
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from testbed.events.log import BadCursor, Cursor, tail_bytes
from webui.accounts.callers import Caller, by_session
from webui.accounts.models import User
from webui.accounts.selectors import session_user
from webui.metering import counting
from webui.outages import DATABASE_AWAY, SOCKET_CODE, WORDS, is_outage
from webui.runs.access import runs_readable
from webui.runs.facts import run_facts
from webui.runs.folder import trial_folder
from webui.runs.selectors import run_get
from webui.runs.states import State
from webui.runs.watch import watched

logger = logging.getLogger(__name__)

TICK_S = 0.1
WHO_EVERY_S = 2.0
"""How often it is asked again who this is and whether the run is theirs to read, also while the page is being sent a
long log or answers nothing: whoever loses a right loses the live pages within two seconds."""
QUEUE_EVERY_S = 1.0
"""How often a page of a waiting run is told its place in the queue."""
BEAT_EVERY_S = 5.0
CHUNK_BYTES = 256 * 1024
WINDOW = 8

SIGNED_OUT = 4401
NO_SUCH_RUN = 4404
BAD_REQUEST = 4400


class NotTheirs(Exception):
    """The run is not, or no longer, for this person to read."""


@dataclass
class _Told:
    """What a page has been told of the row, and when something was last said to it."""

    facts: dict[str, Any] | None = None
    words: dict[str, Any] | None = None
    queue_at: float = 0.0
    spoken_at: float = 0.0


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
        counting.here.viewers_change(1)
        try:
            await self._pump_events(run_id, trial, cursor)
        except asyncio.CancelledError:
            raise
        except NotTheirs:
            await self.close(NO_SUCH_RUN)
        except Exception as fault:
            if is_outage(fault):
                await self.close(SOCKET_CODE, WORDS)
                return
            logger.exception("the stream of run %s broke off", run_id)
            await self.close(1011)
        finally:
            counting.here.viewers_change(-1)

    async def _pump_events(self, run_id: str, trial: str, cursor: Cursor) -> None:
        now = asyncio.get_running_loop().time
        told = _Told()
        caller = await self._reader(run_id)
        who_at = now() + WHO_EVERY_S
        caught_up = False
        async with watched(run_id) as watch:
            while True:
                if now() >= who_at:
                    caller = await self._reader(run_id)
                    who_at = now() + WHO_EVERY_S
                facts = await watch.facts()
                if caller is None or facts is None:
                    await self.close(SIGNED_OUT if caller is None else NO_SUCH_RUN)
                    return
                await self._tell(told, facts, caller, now())
                # Looked at before the read that has to see the last line: the row is finished only after the log is.
                finished = facts["state"] == State.FINISHED
                after, more = await self._send_news(run_id, trial, cursor, live=caught_up and not finished)
                caught_up = not more
                if after != cursor:
                    cursor, told.spoken_at = after, now()
                if more:
                    continue
                if finished:
                    await self.send(text_data=json.dumps({"end": {"cursor": str(cursor)}}))
                    await self.close(1000)
                    return
                if now() - told.spoken_at > BEAT_EVERY_S:
                    told.spoken_at = now()
                    await self.send(text_data="{}")
                await asyncio.sleep(TICK_S)

    async def _send_news(self, run_id: str, trial: str, cursor: Cursor, *, live: bool) -> tuple[Cursor, bool]:
        """Sends what the log has gained, a window of frames at most; the place after it, and whether there is more."""
        events = trial_folder(run_id, trial) / "events"
        for _ in range(WINDOW):
            found, after = tail_bytes(events, cursor, CHUNK_BYTES)
            if not found:
                return cursor, False
            try:
                await asyncio.wait_for(self._credit.acquire(), WHO_EVERY_S)
            except TimeoutError:  # the page answers nothing; meanwhile its rights are looked at
                return cursor, True
            self._unanswered += 1
            head = json.dumps({"cursor": str(after)}).encode() + b"\n"
            await self.send(bytes_data=head + b"".join(lines for _, lines in found))
            if live:
                counting.note_lag(events, [node for node, _ in found])
            cursor = after
        return cursor, True

    async def _tell(self, told: _Told, facts: dict[str, Any], caller: Caller, now: float) -> None:
        """Sends the row where it has changed, or where a waiting run may have come nearer."""
        waits = facts["state"] == State.QUEUED
        if facts is told.facts and not (waits and now >= told.queue_at):
            return
        words = await self._with_queue(facts, caller) if waits else facts
        told.facts, told.queue_at = facts, now + QUEUE_EVERY_S
        if words != told.words:
            told.words, told.spoken_at = words, now
            await self.send(text_data=json.dumps({"run": words}))

    async def _person(self) -> User | None:
        """Whose session this is, while it is good; None for a stranger."""
        user: User | None = await database_sync_to_async(session_user)(session_key=self._session_key)
        return None if user is None or user.one_time_password else user

    async def _reader(self, run_id: str) -> Caller | None:
        """Who looks on; None once they are signed out. Raises NotTheirs once the run is no longer theirs to read."""

        def ask() -> Caller | None:
            counting.here.flush_if_due()
            user = session_user(session_key=self._session_key)
            if user is None or user.one_time_password:
                return None
            caller = by_session(user)
            if not runs_readable(caller).filter(pk=run_id).exists():
                raise NotTheirs(run_id)
            return caller

        caller: Caller | None = await database_sync_to_async(ask)()
        return caller

    async def _with_queue(self, facts: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """What every reader may know, and the place in the queue as this one may know it."""

        def ask() -> dict[str, Any]:
            run = run_get(run_id=facts["id"], caller=caller)
            return facts if run is None else run_facts(run, caller)

        told: dict[str, Any] = await database_sync_to_async(ask)()
        return told
