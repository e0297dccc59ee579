"""The central scheduler of a system with a DRAM pool: it also has the pool's directory, and places by affinity.

After Mooncake's conductor: a prompt goes to the prefill engine whose node holds most of its prefix in DRAM, unless that
one is too far behind; it is placed when it comes, not when a leader fetches. All else is the central scheduler's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec

from testbed.baselines.dram_pool import NOWHERE, Answer, Directory, EngineView, choose
from testbed.dualpath.blocks import block_ids
from testbed.dualpath.local_messages import STORAGE
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.placement_queues import PlacementQueues
from testbed.dualpath.pool_letters import PoolDone, PoolLookup, PoolPlace, PoolPlaces
from testbed.dualpath.profiled import Profiled
from testbed.dualpath.request_scheduler import RequestScheduler
from testbed.dualpath.turn_record import TurnRecord
from testbed.machine import NOTHING, Deliver, Effects, Message, UnexpectedMessage
from testbed.units import Nanoseconds


class AffinityQueues(PlacementQueues):
    """Queues of which nobody waits: every turn gets engines when it comes, the prefill engine by affinity."""

    def __init__(
        self,
        parameters: DualPathParameters,
        known: Profiled,
        prefill: Sequence[str],
        decode: Sequence[str],
        directory: Directory,
    ) -> None:
        super().__init__(parameters, known, prefill, decode)
        self._directory = directory
        self._slack = parameters.affinity_slack_tokens
        self._block_tokens = parameters.block_tokens

    def next_prefill(self, record: TurnRecord) -> int:
        """By affinity. Raises LookupError if no engine is left."""
        turn, tokens = record.turn, self._block_tokens
        full = min(turn.context_tokens, turn.prompt_tokens - 1) // tokens
        blocks = block_ids(turn.prompt, tokens)[:full]
        held = {node: self._directory.prefix(node, blocks) * tokens for node in self.prefill.members}
        engines = [int(engine) for members in self.prefill.members.values() for engine in members]
        if not engines:
            raise LookupError("no engine is left")
        views = []
        for engine in engines:
            node, _ = self.prefill.place_of(engine)
            views.append(EngineView(node, int(self.prefill.tokens[engine]), held[node]))
        return engines[choose(turn.prompt_tokens, views, self._slack)]


class PooledScheduler(RequestScheduler):
    """See the head of this file. `slots` are the Full Blocks that each node's part of the pool holds."""

    def __init__(
        self,
        parameters: DualPathParameters,
        known: Profiled,
        prefill: Sequence[str],
        decode: Sequence[str],
        slots: Mapping[str, int],
    ) -> None:
        affinity = parameters.placement == "affinity"
        # To the scheduler itself, affinity is another way to place turns when they come.
        at_once = msgspec.structs.replace(parameters, placement="round_robin") if affinity else parameters
        super().__init__(at_once, known, prefill, decode)
        self.directory = Directory(slots)
        self._numbering = {node: place for place, node in enumerate(chain(prefill, decode))}
        self._there = set(self._numbering)
        if affinity:
            self.queues = AffinityQueues(at_once, known, prefill, decode, self.directory)

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes the pool's letters beside those of every scheduler."""
        match message:
            case PoolLookup() | PoolDone() if message.node not in self._numbering:
                raise UnexpectedMessage(self.name, message, f"without a node {message.node}")
            case PoolLookup() | PoolDone() if message.node not in self._there:
                return NOTHING  # It is lost: whatever it says comes too late.
            case PoolLookup():
                answers = self.directory.ask(message.node, message.number, message.blocks, read=message.read)
                places = tuple(self._place(answer) for answer in answers)
                return (Deliver(MAIL, Post(message.node, STORAGE, PoolPlaces(message.number, places), self.name)),)
            case PoolDone():
                self.directory.close(message.node, message.number, message.kept)
                return NOTHING
            case _:
                effects = super().receive(now, message)
        self._forget_lost()
        return effects

    def wake(self, now: Nanoseconds) -> Effects:
        """As every scheduler."""
        effects = super().wake(now)
        self._forget_lost()
        return effects

    def _forget_lost(self) -> None:
        left = self.queues.prefill.members.keys() | self.queues.decode.members.keys()
        for node in sorted(self._there - left):
            self._there.discard(node)
            self.directory.lose(node)

    def _place(self, answer: Answer) -> PoolPlace:
        if answer.copy is None:
            return PoolPlace(NOWHERE, NOWHERE, answer.keep)
        return PoolPlace(self._numbering[answer.copy.node], answer.copy.slot, answer.keep)
