"""A web process on the tests' own database, for what has to be served for real, and callers with tokens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.command.places import SOURCE
from tests.webui.api.calling import Caller
from webui.accounts.models import User


@pytest.fixture(scope="module")
def served(state_folder: Path, django_db_setup: None) -> Iterator[str]:
    """Its address. Without rate limits: what is asked here is asked as fast as it goes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.set_inheritable(True)
        environment = {
            **os.environ,
            "LOOPLANE_STATE": str(state_folder),
            "DJANGO_SETTINGS_MODULE": "webui.settings",
            "LOOPLANE_RATE_LIMITS": "api=0,strangers=0,runs=0,exports=0",
        }
        words = [sys.executable, "-m", "webui.serve", "--fd", str(listener.fileno())]
        process = subprocess.Popen(words, cwd=SOURCE, env=environment, pass_fds=[listener.fileno()])
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            for _ in range(300):
                with suppress(OSError), urllib.request.urlopen(f"{address}/healthz", timeout=1):
                    break
                assert process.poll() is None
                time.sleep(0.1)
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(15)


@pytest.fixture
def call(user: User) -> Caller:
    """A runner."""
    return Caller(user)
