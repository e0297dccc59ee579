"""A turn of an agent, and the messages by which agents and servers speak of it.

Agentic traffic is counted, not read: a prompt is runs of token streams (`TokenRun`), so that equal prefixes are equal
runs, block ids follow from them, and a million requests carry no text. A turn's answer is forced to its length
(DualPath, A.3). Nothing here knows a system, a clock or a network.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from testbed.machine import Message


class TokenRun(msgspec.Struct, frozen=True, array_like=True):
    """Tokens `first` to `first + count - 1` of the endless stream `stream`; equal places hold equal tokens."""

    stream: int
    """63 bits."""
    first: int
    count: int


class Turn(msgspec.Struct, frozen=True):
    """One request of one agent."""

    name: str
    """Unique in a run, as a0003.t012."""
    agent: int
    number: int
    """Of the turn within its trajectory, from 0."""
    prompt: tuple[TokenRun, ...]
    """The whole prompt, context first."""
    context_tokens: int
    """Leading tokens of the prompt that the agent's earlier turns have left, prompts and answers: what may hit."""
    answer: tuple[TokenRun, ...]
    """What will be generated: exactly these tokens (DualPath A.3 forces the length)."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return length(self.prompt)

    @property
    def append_tokens(self) -> int:
        """Tokens that are new in this turn's prompt."""
        return self.prompt_tokens - self.context_tokens

    @property
    def generate_tokens(self) -> int:
        """Length of the answer, at least 1."""
        return length(self.answer)


class SubmitTurn(Message, frozen=True, tag="submit"):
    """To a server: an agent's turn."""

    turn: Turn


class TurnAdvanced(Message, frozen=True, tag="advanced"):
    """From a server: `tokens` more tokens of the turn's answer; the last message of a turn says `done`."""

    name: str
    tokens: int
    done: bool = False


class TurnFailed(Message, frozen=True, tag="failed"):
    """From a server: the turn will not be answered, or broke off."""

    name: str
    reason: str


def length(runs: Iterable[TokenRun]) -> int:
    """Tokens in all."""
    return sum(run.count for run in runs)


def joined(runs: Iterable[TokenRun]) -> tuple[TokenRun, ...]:
    """The same tokens in as few runs as there can be: the one form in which equal tokens are equal runs."""
    out: list[TokenRun] = []
    for run in runs:
        if run.count <= 0:
            continue
        last = out[-1] if out else None
        if last is not None and last.stream == run.stream and last.first + last.count == run.first:
            out[-1] = TokenRun(last.stream, last.first, last.count + run.count)
        else:
            out.append(run)
    return tuple(out)


def cut(runs: Iterable[TokenRun], first: int, count: int) -> tuple[TokenRun, ...]:
    """Tokens `first` to `first + count - 1` of the runs, joined; fewer where they end before."""
    out: list[TokenRun] = []
    place = 0
    for run in runs:
        low, high = max(first, place), min(first + count, place + run.count)
        if low < high:
            out.append(TokenRun(run.stream, run.first + low - place, high - low))
        place += run.count
    return joined(out)
