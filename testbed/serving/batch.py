"""Generations and the running batch: who shares a decode step. It knows no slots, no blocks' ids and no time."""

from __future__ import annotations

from typing import Generic, TypeVar

from testbed.machine import MachineError
from testbed.serving.engine import Lane
from testbed.serving.requests import Sampling


class Generation:
    """One request whose answer is being generated."""

    __slots__ = ("blocks", "computed", "generated", "max_tokens", "prompt_tokens", "request", "sampling", "tail")

    def __init__(
        self,
        request: int,
        prompt_tokens: int,
        max_tokens: int,
        sampling: Sampling,
        tail: tuple[int, int],
        blocks: tuple[int, ...],
    ) -> None:
        self.request = request
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.sampling = sampling
        self.tail = tail
        """The last two tokens: what the next one depends on (stands for the KV blocks' contents)."""
        self.blocks = blocks
        self.generated = 0
        self.computed = 0
        """Tokens of its context whose KV is there, until its first token of this life is drawn."""

    @property
    def context(self) -> int:
        """Tokens whose KV the next step reads."""
        return self.prompt_tokens + self.generated

    def push(self, token: int) -> None:
        """Takes the next token of the answer."""
        self.generated += 1
        self.tail = (self.tail[1], token)

    def lane(self) -> Lane:
        """What a graph's input tensors say of this sequence for its next token."""
        sampling = self.sampling
        return Lane(
            self.request, self.generated, self.context, self.tail,
            sampling.temperature, sampling.top_p, sampling.seed, sampling.ignore_eos,
        )  # fmt: skip

    def prompt_lane(self, fresh: int) -> Lane:
        """What a graph's input tensors say of this sequence when `fresh` more tokens of its context are computed.

        The context is its prompt, and behind it what was generated before a restart. A token is drawn behind all of it.
        """
        if fresh == self.context:
            return self.lane()
        context = self.computed + fresh
        return self.lane()._replace(context=context, fresh=fresh, draws=context == self.context)


G = TypeVar("G", bound=Generation)


class Batch(Generic[G]):
    """The running batch, in order of joining; a member's index is its lane."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.members: list[G] = []

    def __len__(self) -> int:
        return len(self.members)

    @property
    def places(self) -> int:
        """How many may still join."""
        return self.capacity - len(self.members)

    @property
    def longest(self) -> int:
        """Longest context of a member, 0 without members."""
        return max((member.context for member in self.members), default=0)

    def join(self, member: G) -> None:
        """Adds a member. Raises MachineError if there is no place."""
        if not self.places:
            raise MachineError(f"the batch has no place for request {member.request}")
        self.members.append(member)

    def keep(self, members: list[G]) -> None:
        """Lets everybody leave who is not in `members`."""
        self.members = members
