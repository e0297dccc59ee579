"""One attempt to hand a message over: HTTP by the standard library to an address that was checked, in bounded time.

Redirects are not followed (they would lead past the check), the answer's body is not read, and nothing of it but the
status is kept. Knows no database.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from webui.hooks.destinations import BadDestination, Destination, checked_address, destination_of

STEP_S = 5.0
"""Longest wait for the connection, and for each piece of the answer."""
WHOLE_S = 10.0
"""Longest attempt altogether: a receiver that drips its answer does not hold the sender."""


class Answer(NamedTuple):
    """How an attempt came out."""

    status: int | None
    """HTTP status; None where there was no answer."""
    fault: str
    """Why it does not count as delivered; empty when it does."""

    @property
    def delivered(self) -> bool:
        """2xx, and nothing else."""
        return not self.fault


def send(url: str, body: bytes, headers: Mapping[str, str], *, allowed: Sequence[str]) -> Answer:
    """POSTs `body`; never raises."""
    try:
        to = destination_of(url)
        address = checked_address(to, allowed)
    except BadDestination as fault:
        return Answer(None, str(fault))
    connection = _Connection(to, address)
    watchdog = threading.Timer(WHOLE_S, connection.cut)
    watchdog.daemon = True
    watchdog.start()
    try:
        connection.request("POST", to.target, body=body, headers={**headers, "Host": to.authority})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as fault:
        return Answer(None, f"no answer within {WHOLE_S:.0f} s" if connection.was_cut else _words(fault))
    finally:
        watchdog.cancel()
        connection.close()
    if 200 <= status < 300:
        return Answer(status, "")
    if 300 <= status < 400:
        return Answer(status, f"answered {status}; redirects are not followed")
    return Answer(status, f"answered {status}")


def _words(fault: Exception) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {fault.verify_message}"
    if isinstance(fault, TimeoutError):
        return f"no answer within {STEP_S:.0f} s"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    return f"no HTTP answer ({type(fault).__name__})"


class _Connection(http.client.HTTPConnection):
    """To `address`, in the name of the destination's host: for the Host header and the certificate."""

    def __init__(self, to: Destination, address: str) -> None:
        super().__init__(to.host, to.port, timeout=STEP_S)
        self._to = to
        self._address = address
        self.was_cut = False

    def connect(self) -> None:
        """Opens the connection, with TLS where the address says so."""
        plain = socket.create_connection((self._address, self._to.port), timeout=STEP_S)
        self.sock = plain
        if self._to.scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=self._to.host)

    def cut(self) -> None:
        """Ends the attempt from another thread."""
        self.was_cut = True
        held = self.sock
        if held is not None:
            try:
                held.shutdown(socket.SHUT_RDWR)
            except OSError:
                return
