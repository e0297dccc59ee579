"""A request, and the messages by which clients and servers speak of it, whatever the server is made of.

The HTTP shell of an emulated DPU, the simulated front network and the tests all use these.
"""

from __future__ import annotations

import msgspec

from testbed.machine import Message
from testbed.units import Nanoseconds


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are drawn. `temperature` 0 means the most likely token; `top_p` in (0, 1]."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    ignore_eos: bool = True


class Request(msgspec.Struct, frozen=True):
    """One request as a client means it."""

    name: str
    """The client's own name for it (x-request-id)."""
    prompt: str
    max_tokens: int
    """Upper bound of the answer, at least 1."""
    sampling: Sampling = Sampling()
    scheduled: Nanoseconds = 0
    """When an open-loop client meant to send it."""
    prompt_tokens: int = 0
    """What the client's own tokeniser made of the prompt, for its log; 0 where it has none. No server looks at it."""
    prompt_ids: tuple[int, ...] = ()
    """The prompt as token ids. Where there are any the server takes them as they are, and `prompt` is only their text
    for whoever reads: text made from ids does not always give the same ids again."""


class Submit(Message, frozen=True):
    """To a server: a request has arrived."""

    request: Request


class Abandon(Message, frozen=True):
    """To a server: the client of `name` is gone."""

    name: str


class Finish(Message, frozen=True):
    """To a server: the client of `name` has its whole answer, since a stop string ended it; no more tokens please.

    Stop strings are matched on text, which is the client's side of a server; the server only learns that it is over.
    """

    name: str


class Tokens(Message, frozen=True):
    """From a server: the next tokens of a request. The last one has `reason`."""

    name: str
    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    """One text a token; empty where an incomplete UTF-8 sequence is held back until a later token."""
    prompt_tokens: int
    reason: str | None = None
    """stop or length on the last message of a request, else None."""
    cached_tokens: int = 0
    """Tokens of the prompt whose KV the server had already."""


class Refused(Message, frozen=True):
    """From a server: the request will not be served, or broke off."""

    name: str
    reason: str
    """ring_full (try again), context_length_exceeded, invalid_request, unavailable, cancelled, internal."""
    detail: str
