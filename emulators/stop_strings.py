"""Stop strings over a stream of texts: what may be sent, what must be held back, and where the answer ends.

A text that could be the beginning of a stop string is held until it is known. The result does not depend on how the
text was cut: the stop that is complete first wins, and of those the one that began first.

It may not know tokens, requests or HTTP.
"""

from __future__ import annotations


class StopStrings:
    """One answer's matcher. Without stop strings it hands every text through."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Raises ValueError for an empty stop string, which would match at once."""
        if "" in stops:
            raise ValueError("a stop string may not be empty")
        self._stops = stops
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The part of the answer that is safe to send now that `text` was added; nothing after a match."""
        if not self._stops:
            return text
        if self.matched is not None:
            return ""
        held = self._held + text
        found = self._first(held)
        if found is not None:
            start, self.matched = found
            self._held = ""
            return held[:start]
        keep = self._beginning_at_end(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """What is still held when the answer ends by itself."""
        held, self._held = self._held, ""
        return held

    def _first(self, held: str) -> tuple[int, str] | None:
        found: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = held.find(stop)
            if start >= 0 and (found is None or (start + len(stop), start) < found[:2]):
                found = (start + len(stop), start, stop)
        return None if found is None else (found[1], found[2])

    def _beginning_at_end(self, held: str) -> int:
        """Length of the longest end of `held` that is a proper beginning of a stop string."""
        longest = min(len(held), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            end = held[-length:]
            if any(len(stop) > length and stop.startswith(end) for stop in self._stops):
                return length
        return 0
