"""The web process on the tests' own database, for what has to be served for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.command.places import SOURCE


@contextmanager
def web_process(state: Path, **variables: str) -> Iterator[str]:
    """Its host and port, once it answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.set_inheritable(True)
        environment = {**os.environ, "LOOPLANE_STATE": str(state), "DJANGO_SETTINGS_MODULE": "webui.settings"}
        words = [sys.executable, "-m", "webui.serve", "--fd", str(listener.fileno())]
        process = subprocess.Popen(words, cwd=SOURCE, env=environment | variables, pass_fds=[listener.fileno()])
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    try:
        for _ in range(300):
            with suppress(OSError), urllib.request.urlopen(f"http://{address}/healthz", timeout=1):
                break
            assert process.poll() is None
            time.sleep(0.1)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)
