"""The queue without a server: kombu's folder of messages, with each message put there whole.

Kombu opens a message under its final name and then writes it. A worker that looks in between takes an empty file and
ends with a JSONDecodeError, which a burst of runs brings about. Here the file gets its name when all of it is written.
"""

# mypy: disable-error-code="no-untyped-call, misc"
# kombu has no types of its own.
from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps


class WholeMessages(filesystem.Channel):
    """Kombu's, but for how a message is put."""

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]  # as in kombu
        """As kombu's: the names, which begin with the time, are the order."""
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        path = Path(self.data_folder_out) / name
        part = path.with_suffix(".part")
        try:
            part.write_text(dumps(payload))
            os.replace(part, path)
        except OSError as fault:
            raise ChannelError(f"Cannot add file {str(path)!r} to directory") from fault


class Transport(filesystem.Transport):
    """`CELERY_BROKER_TRANSPORT` where no REDIS_URL is set."""

    Channel = WholeMessages
