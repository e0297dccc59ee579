"""What writes the audit log. Called by the services that do the deed, within their transaction."""

from __future__ import annotations

from typing import Any

from webui.accounts.models import User
from webui.audit.deeds import Deed
from webui.audit.models import Entry
from webui.audit.origin import present_origin

CONSOLE = "console"


def note(deed: Deed, thing: str = "", *, by: User | None = None, **detail: Any) -> None:
    """Writes one deed down. Without `by` it is the person of the request under way, else the console itself.

    `detail` is JSON; never put a secret into it.
    """
    origin = present_origin()
    actor = by or origin.user
    who = origin.who if by is None or by == origin.user else by.username
    Entry.objects.create(
        actor=actor,
        who=(who or (actor.username if actor else CONSOLE))[:180],
        address=origin.address,
        deed=deed.value,
        thing=thing[:180],
        detail=detail,
    )
