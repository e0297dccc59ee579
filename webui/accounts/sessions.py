"""Sessions that know whose they are: the engine that settings.SESSION_ENGINE names.

A session ends `SESSION_COOKIE_AGE` after its last use and `SESSION_LONGEST` after sign-in, whichever is first. What is
a column here can be listed and ended by its owner; what a session holds besides is Django's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.utils import timezone

OPENED, SEEN, ADDRESS, AGENT = "opened_at", "seen_at", "address", "agent"
"""What `services.session_open` and `session_touch` keep in a session."""


def moment(value: Any) -> datetime | None:
    """A moment as it is kept in a session, or None."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None


class SessionStore(DatabaseStore):
    """Django's own store on a table with owners."""

    @classmethod
    def get_model_class(cls) -> Any:
        """By name: its module imports this one."""
        return apps.get_model("accounts", "Session")

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        """The row for what the session holds."""
        row: Any = super().create_model_instance(data)
        row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        row.address = data.get(ADDRESS)
        row.agent = str(data.get(AGENT, ""))[:200]
        row.opened_at = moment(data.get(OPENED)) or timezone.now()
        row.seen_at = moment(data.get(SEEN)) or row.opened_at
        return row

    def get_expiry_age(self, **kwargs: Any) -> int:
        """Seconds from now; also the cookie's."""
        idle = int(settings.SESSION_COOKIE_AGE)
        opened = moment(self.get(OPENED))
        if opened is None:
            return idle
        longest: timedelta = settings.SESSION_LONGEST
        return max(0, min(idle, int((opened + longest - timezone.now()).total_seconds())))

    def get_expiry_date(self, **kwargs: Any) -> datetime:
        """As the row has it."""
        return timezone.now() + timedelta(seconds=self.get_expiry_age())
