"""Server-sent events as bytes: one event a block, LF only; and a decoder for all line ends that the standard allows.

Follows WHATWG HTML §9.2.5-9.2.6 ("event stream") and, for what benchmark clients demand beyond it, design serving.md
§4.1: `data: ` with its space, a single line of ASCII JSON, an empty line after it, and the end as `data: [DONE]`.

It may not know what the data mean, nor who sends them.
"""

from __future__ import annotations

END_OF_DATA = b"[DONE]"
"""The data of the last event of an OpenAI stream."""

DONE = b"data: [DONE]\n\n"
"""The last event of an OpenAI stream, as bytes."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def event(data: bytes) -> bytes:
    """One event that carries `data`. Raises ValueError if the data hold a line end, which would split the event."""
    if b"\n" in data or b"\r" in data:
        raise ValueError("the data of a server-sent event must be a single line")
    return b"data: " + data + b"\n\n"


class Decoder:
    """Bytes of a stream, in any cuts, to the data of its events.

    Only `data` fields count; comments and the fields event, id and retry are read over. An event without data is
    none, and a last block without its empty line is dropped, as the standard says.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._at_start = True

    def feed(self, received: bytes) -> list[bytes]:
        """The data of all events that `received` completes, in order."""
        if not self._data and not self._rest and not self._at_start and b"\r" not in received:
            plain = self._feed_plain(received)
            if plain is not None:
                return plain
        return self._feed_any(received)

    def _feed_plain(self, received: bytes) -> list[bytes] | None:
        """The usual case in one step: whole blocks of exactly one `data: ` line each; None if it is another case."""
        if not received.endswith(b"\n\n"):
            return None
        blocks = received[:-2].split(b"\n\n")
        for block in blocks:
            if not block.startswith(b"data: ") or b"\n" in block:
                return None
        return [block[6:] for block in blocks]

    def _feed_any(self, received: bytes) -> list[bytes]:
        text = self._rest + received
        if self._at_start:
            if len(text) < 3 and _BYTE_ORDER_MARK.startswith(text):
                self._rest = text
                return []
            text = text.removeprefix(_BYTE_ORDER_MARK)
            self._at_start = False
        held = b""
        if text.endswith(b"\r"):  # its LF may come with the next bytes
            text, held = text[:-1], b"\r"
        *lines, last = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = last + held
        events: list[bytes] = []
        for line in lines:
            self._take_line(line, events)
        return events

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
