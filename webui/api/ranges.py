"""Parts of a file by HTTP's Range header (RFC 9110 §14). Pure; knows sizes and texts, no file.

One part is answered with 206 and Content-Range, several with multipart/byteranges; a header that names no byte of
the file, or is no range at all, is 416. Units other than bytes are ignored, as the RFC asks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_PARTS = 16
"""More in one header are refused: a client that needs that many asks for the file."""
_SPEC = re.compile(r"(\d{0,19})-(\d{0,19})", re.ASCII)
BOUNDARY = "looplane-range-5f0c2a7d41"


class Span(NamedTuple):
    """Bytes from `start` up to, without, `end`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Bytes."""
        return self.end - self.start


class Unsatisfiable(Exception):
    """No byte that was asked for is there."""


def spans_of(header: str, size: int) -> list[Span]:
    """The spans that `header` asks for of a file of `size` bytes; empty for the whole file. Raises Unsatisfiable."""
    unit, equals, told = header.partition("=")
    if not equals or unit.strip().lower() != "bytes":
        return []
    specs = [spec.strip() for spec in told.split(",") if spec.strip()]
    if not specs or len(specs) > MOST_PARTS:
        raise Unsatisfiable
    spans = [span for span in (_span(spec, size) for spec in specs) if span is not None]
    if not spans:
        raise Unsatisfiable
    if sum(span.length for span in spans) > size:  # overlapping parts may not make the answer longer than the file
        return []
    return spans


def _span(spec: str, size: int) -> Span | None:
    """One spec; None if it lies behind the end. Raises Unsatisfiable for what is no spec."""
    found = _SPEC.fullmatch(spec)
    if found is None or not (found[1] or found[2]):
        raise Unsatisfiable
    if not found[1]:  # the last so many bytes
        length = min(int(found[2]), size)
        return Span(size - length, size) if length else None
    start = int(found[1])
    end = min(int(found[2]) + 1, size) if found[2] else size
    if found[2] and int(found[2]) < start:
        raise Unsatisfiable
    return Span(start, end) if start < size else None


def part_head(span: Span, size: int, content_type: str) -> bytes:
    """What stands before a part of a multipart answer."""
    where = content_range(span, size)
    return f"\r\n--{BOUNDARY}\r\nContent-Type: {content_type}\r\nContent-Range: {where}\r\n\r\n".encode()


PARTS_END = f"\r\n--{BOUNDARY}--\r\n".encode()


def content_range(span: Span, size: int) -> str:
    """The header's value for one part."""
    return f"bytes {span.start}-{span.end - 1}/{size}"
