"""The worker's clockwork for webhooks: tells what has happened and sends what is due, in threads of its own.

Apart from the sweeper, since a receiver that is slow to answer must never delay the finding of lost runs. Every
worker may have one: deliveries are claimed.
"""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery import bootsteps
from django.db import close_old_connections, connection

from webui.hooks import selectors, services
from webui.hooks.models import Delivery

logger = logging.getLogger(__name__)

PERIOD_S = 2.0
AT_ONCE = 4
"""Attempts under way at the same time; one receiver has at most one of them."""
TIDY_EVERY = 1800
"""Rounds: once an hour."""


def send_round() -> int:
    """Tells, then sends what is due; returns how many attempts were made."""
    services.run_tell()
    by_hook: dict[int, list[Delivery]] = {}
    for delivery in selectors.delivery_due():
        by_hook.setdefault(delivery.webhook_id, []).append(delivery)
    if not by_hook:
        return 0
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="hook") as pool:
        return sum(pool.map(_send_in_turn, by_hook.values()))


def _send_in_turn(deliveries: list[Delivery]) -> int:
    """One hook's messages, one after the other; after a failure the rest waits for the next round."""
    made = 0
    try:
        for delivery in deliveries:
            answer = services.delivery_send(delivery=delivery)
            made += answer is not None
            if answer is not None and not answer.delivered:
                break
    finally:
        connection.close()  # this thread's own
    return made


class HookSender(bootsteps.StartStopStep):
    """Runs beside the worker."""

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._ended = threading.Event()

    def start(self, parent: Any) -> None:
        """Begins."""
        threading.Thread(target=self._run, name="hook-sender", daemon=True).start()

    def stop(self, parent: Any) -> None:
        """Ends after the round in hand."""
        self._ended.set()

    def _run(self) -> None:
        rounds = 0
        while not self._ended.wait(PERIOD_S):
            try:
                send_round()
                if rounds % TIDY_EVERY == 0:
                    services.delivery_tidy()
                rounds += 1
            except Exception:
                logger.exception("a round of webhooks failed; the next one follows")
            finally:
                close_old_connections()
