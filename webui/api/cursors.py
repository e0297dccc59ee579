"""A reader's place in a list of runs, newest first: opaque text for the client, a moment and an id for us.

The place is where the last row stood, not how many rows there were: rows that are added meanwhile shift nothing, and
the row itself may have gone. Pure; knows no database.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from testbed.experiment.run_folder import RUN_ID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = re.compile(r"\A(\d{1,18})\.(.+)\Z", re.ASCII)


class BadCursor(Exception):
    """A text that no answer has handed out."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text[:60]!r} is no cursor of this list; take `next` of an earlier answer.")


class Place(NamedTuple):
    """Rows after this one come next."""

    moment: datetime
    run_id: str


def cursor_text(place: Place) -> str:
    """The text that stands for `place`; microseconds are kept, since that is what the database keeps."""
    micros = (place.moment - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{micros}.{place.run_id}".encode()).decode().rstrip("=")


def cursor_place(text: str) -> Place:
    """The place that `text` stands for. Raises BadCursor."""
    try:
        told = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
        found = _PLACE.match(told)
        if found is None or not RUN_ID.fullmatch(found[2]):
            raise BadCursor(text)
        place = Place(_EPOCH + timedelta(microseconds=int(found[1])), found[2])
    except (binascii.Error, UnicodeError, ValueError, OverflowError):
        raise BadCursor(text) from None
    if cursor_text(place) != text:  # one text for one place
        raise BadCursor(text)
    return place
