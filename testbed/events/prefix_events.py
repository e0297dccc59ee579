"""Events of prefix caching in a resident scheduler. Part of `testbed.events.schema.AnyEvent`."""

from __future__ import annotations

from testbed.machine import Event


class PrefixReused(Event, frozen=True, tag="prefix.reused"):
    """A claimed prompt was looked up in the tree of prefixes."""

    request: int
    prompt_tokens: int
    cached_tokens: int
    """Tokens at its front whose KV was there; 0 for none."""
    idle_blocks: int
    """Remembered KV blocks that nobody holds, after this claim."""
    evicted_blocks: int
    """Remembered KV blocks that had to make room so far."""
