"""While the database does not answer: how that is told from a fault of ours, and what is answered meanwhile.

A run does not need the database to go on; only what is written about it does. So nothing is decided during an outage:
watchers wait, pages and API say 503, live pages come back by themselves. Whose fault it is stands in the log.
"""

from __future__ import annotations

from django.db import InterfaceError, OperationalError

DATABASE_AWAY = (OperationalError, InterfaceError)
"""What Django raises when the database is away, restarts, or is locked for too long."""
RETRY_AFTER_S = 5
"""What 503 tells a client to wait; a restart of PostgreSQL takes less."""
WORDS = "The console's database does not answer. Runs in flight go on; try again in a few seconds."
SOCKET_CODE = 1013
"""Close code `Try Again Later` of RFC 6455's registry."""

_OURS = ("no such table", "no such column", "syntax error", "no such function")
"""SQLite raises OperationalError for these too, and waiting does not help."""


def is_outage(fault: BaseException | None) -> bool:
    """Whether waiting may help: the fault, or what it was raised from, is the database being away."""
    while fault is not None:
        if isinstance(fault, DATABASE_AWAY):
            text = str(fault)
            return not any(word in text for word in _OURS)
        fault = fault.__cause__
    return False
