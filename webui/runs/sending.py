"""Answers that are sent in pieces while they are made. Under ASGI Django gathers a plain iterator whole before it sends
the first byte; so each piece is made on a thread and handed over as it comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

_END = b""


def in_pieces(
    request: HttpRequest, pieces: Iterator[bytes], *, content_type: str, filename: str
) -> StreamingHttpResponse:
    """A download of `pieces`, none of which is empty but perhaps the last."""
    return StreamingHttpResponse(
        _handed_over(pieces) if isinstance(request, ASGIRequest) else pieces,
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{filename}"'},
    )


async def _handed_over(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    after = sync_to_async(lambda: next(pieces, _END), thread_sensitive=False)
    while piece := await after():
        yield piece


def together(lines: Iterator[bytes], size: int = 1 << 17) -> Iterator[bytes]:
    """Lines in pieces of about `size` bytes: a thread for each line would cost more than the line."""
    gathered: list[bytes] = []
    length = 0
    for line in lines:
        gathered.append(line)
        length += len(line)
        if length >= size:
            yield b"".join(gathered)
            gathered, length = [], 0
    if gathered:
        yield b"".join(gathered)
