"""How much a request may bring along, asked before Django reads a byte of it.

Django looks at sizes when a view asks for the body; by then its ASGI handler has put all of it on the disk, whoever
sent it. Nothing that this console takes is longer than `LIMIT`: there are no uploads but the text of an experiment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from webui.api.errors import PREFIX, plain_error

LIMIT = 1_100_000
"""Bytes; a little more than settings.DATA_UPLOAD_MAX_MEMORY_SIZE, so that what is just too long gets its page."""

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


class BodyLimit:
    """ASGI middleware around the HTTP application."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """413 for a request that says it is too long, and for one that turns out to be."""
        if _said(scope) > LIMIT:
            await _refuse(scope, send)
            return
        came, answered = 0, False

        async def counted() -> Any:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            # To Django a client that has gone: it closes what it has written and makes no answer.
            return message if came <= LIMIT else {"type": "http.disconnect"}

        async def noted(message: Any) -> None:
            nonlocal answered
            answered = True
            await send(message)

        await self.app(scope, counted, noted)
        if came > LIMIT and not answered:
            await _refuse(scope, send)


def _said(scope: Mapping[str, Any]) -> int:
    """Of Content-Length; 0 where there is none or no number, which servers refuse themselves."""
    for name, value in scope.get("headers", ()):
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _refuse(scope: Mapping[str, Any], send: Send) -> None:
    kind, body = b"application/json", plain_error(413).content
    if not str(scope.get("path", "")).startswith(PREFIX):
        kind, body = b"text/plain; charset=utf-8", b"The request is too large.\n"
    headers = [(b"content-type", kind), (b"connection", b"close"), (b"cache-control", b"private, no-store")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
