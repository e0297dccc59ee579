"""What is too long is refused before it is read, and nothing of it reaches the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from webui.asgi import application
from webui.bodies import LIMIT

pytestmark = pytest.mark.django_db(transaction=True)


def ask(path: str, chunks: Iterator[bytes], *, length: int | None = None) -> tuple[int, bytes, int]:
    """Status, body, and how many bytes were taken from us."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/x-www-form-urlencoded")]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "root_path": "",
        "server": ("localhost", 80), "scheme": "http",
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        chunk = next(chunks, None)
        assert chunk is not None
        taken += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]), taken


def endless() -> Iterator[bytes]:
    while True:
        yield b"x" * 65536


@pytest.mark.parametrize("path", ["/login", "/api/v1/runs", "/nowhere"])
def test_a_body_without_end_is_cut_off(path: str) -> None:
    status, body, taken = ask(path, endless())
    assert status == 413
    assert LIMIT < taken <= LIMIT + 65536
    assert (b'"code": "too_large"' in body) == path.startswith("/api/")


@pytest.mark.parametrize("path", ["/login", "/api/v1/runs"])
def test_one_that_says_it_is_too_long_is_not_read(path: str) -> None:
    assert ask(path, endless(), length=LIMIT + 1)[::2] == (413, 0)
