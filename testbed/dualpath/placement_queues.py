"""The queues of turns that wait for engines, and the rules of placement applied to them when a group fetches.

One global queue for prefill placement, first in, first out; one global and one private queue a group for decode
placement, which is not (design dualpath 1.2 and 1.3). Prefill comes first: the paper leaves the order open, and only
prefill placement keeps that of arrival. Whichever node of a group fetches, its whole group is placed on. It sends
nothing and knows no letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from testbed.dualpath import decode_placement, prefill_placement
from testbed.dualpath.engine_ledger import EngineLedger, ReadQueues
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.profiled import Profiled
from testbed.dualpath.turn_record import NOWHERE, TurnMove, TurnRecord

_WINDOW = 64
"""Waiting turns that one call of prefill placement looks at: a bound on arrays, not on what is placed."""


class PlacementQueues:
    """See the head of this file. `prefill` and `decode` name the nodes of each role."""

    def __init__(
        self, parameters: DualPathParameters, known: Profiled, prefill: Sequence[str], decode: Sequence[str]
    ) -> None:
        self._parameters = parameters
        self._known = known
        engines = parameters.engines_per_node
        self.prefill = EngineLedger(prefill, engines, group_nodes=parameters.prefill_group_nodes)
        self.decode = EngineLedger(decode, engines, known.hbm_blocks, parameters.decode_group_nodes)
        self.read_queues = ReadQueues([*prefill, *decode])
        self._waiting: deque[TurnRecord] = deque()
        self._half_placed: list[TurnRecord] = []
        self._prefill_turn = self._group_turn = 0
        """Turns that were placed so far: where the next tie begins."""
        self._decode_turn = dict.fromkeys(self.decode.groups, 0)
        self._private: dict[int, deque[TurnRecord]] = {group: deque() for group in self.decode.groups}

    def add(self, record: TurnRecord) -> None:
        """A turn waits, behind all that came before it."""
        behind = next((at for at, each in enumerate(reversed(self._waiting)) if each.order < record.order), None)
        place = 0 if behind is None else len(self._waiting) - behind
        self._waiting.insert(place, record)

    def nobody_left(self) -> str:
        """The role of which all nodes are lost, in words; empty while there is none."""
        for role, ledger in (("prefill", self.prefill), ("decode", self.decode)):
            if not ledger.members:
                return f"no {role} node is left"
        return ""

    def place_prefill(self, node: str, reads: Callable[[TurnRecord], int]) -> None:
        """Design 1.2, for the group of `node`. `reads` are the tokens by which a turn grows the queue that is compared
        here, as if it were read here; what counts later is the path that is chosen.
        """
        ledger = self.prefill
        engines = ledger.engines_of(ledger.group_of(node))
        queue = np.array([self.read_queues.of(each) for each in ledger.nodes], np.int64)
        while self._waiting:
            turns = list(islice(self._waiting, _WINDOW))
            chosen = np.full(len(turns), NOWHERE, np.int64)
            members = self._in_turn(engines, self._prefill_turn)
            placed = prefill_placement.place(
                _lengths(turns), np.array([reads(record) for record in turns], np.int64), members,
                ledger.node_of, ledger.tokens, queue, self._known.alpha_tokens, self._known.beta_tokens, chosen,
            )  # fmt: skip
            for engine in chosen[:placed].tolist():
                record = self._waiting.popleft()
                ledger.sequences[engine] += 1
                record.move(TurnMove.GIVE_PREFILL)
                record.prefill = engine
                self._half_placed.append(record)
            self._prefill_turn += placed
            if placed < len(turns):
                return

    def place_decode(self, node: str) -> list[tuple[TurnRecord, int]]:
        """Design 1.3: phase 1 for all groups, phase 2 for the group of `node`: turns and their decode engines."""
        self._assign_groups()
        ledger, group = self.decode, self.decode.group_of(node)
        turns = self._private[group]
        members = self._in_turn(ledger.engines_of(group), self._decode_turn[group])
        chosen = np.full(len(turns), NOWHERE, np.int64)
        placed = decode_placement.place(
            _lengths(turns), np.array([record.blocks for record in turns], np.int64), members,
            ledger.tokens, ledger.sequences, ledger.free, self._parameters.z_percent, self._parameters.max_sequences,
            chosen,
        )  # fmt: skip
        self._decode_turn[group] += placed
        return [(turns.popleft(), engine) for engine in chosen[:placed].tolist()]

    def place_in_turn(self) -> list[tuple[TurnRecord, int]]:
        """Round robin: all that wait get the next engines of both roles at once. Raises LookupError if none is left."""
        placed = []
        while self._waiting:
            prefill, decode = self.next_prefill(self._waiting[0]), self.decode.next_in_turn()
            record = self._waiting.popleft()
            self.prefill.give(prefill, record.length, 0)
            self.decode.give(decode, record.length, record.blocks)
            record.move(TurnMove.GIVE_PREFILL)
            record.prefill = prefill
            placed.append((record, decode))
        return placed

    def next_prefill(self, record: TurnRecord) -> int:  # noqa: ARG002  # other ways to choose it look at the turn
        """The prefill engine of a turn that is placed when it comes: the next in turn. Raises LookupError if none."""
        return self.prefill.next_in_turn()

    def lose(self, node: str) -> None:
        """The engines of `node` are gone: turns that wait for them, or have half of them, wait for others."""
        if node in self.prefill.members:
            del self.prefill.members[node]
            self._half_placed = list(self._stay(self._half_placed, node))
            self._private = {group: deque(self._stay(turns, node)) for group, turns in self._private.items()}
        else:
            del self.decode.members[node]
            for group in self._private.keys() - set(self.decode.groups):
                self._half_placed.extend(self._private.pop(group))

    def drain(self) -> list[TurnRecord]:
        """Everything that waits, in order of arrival; nothing does any more."""
        half_placed = [*self._half_placed, *chain.from_iterable(self._private.values())]
        for record in half_placed:
            self.prefill.take(record.prefill, record.length, 0)
        turns = [*self._waiting, *half_placed]
        self._waiting.clear()
        self._half_placed.clear()
        for private in self._private.values():
            private.clear()
        return sorted(turns, key=lambda record: record.order)

    def _assign_groups(self) -> None:
        if not self._half_placed:
            return
        groups = self._in_turn(np.array(self.decode.groups, np.int64), self._group_turn).tolist()
        self._group_turn += len(self._half_placed)
        waiting = [sum(record.length for record in self._private[group]) for group in groups]
        sums = self.decode.group_tokens(groups) + np.array(waiting, np.int64)
        chosen = np.zeros(len(self._half_placed), np.int64)
        # A group's waiting turns count as its own: not stated, see `assign_groups`.
        decode_placement.assign_groups(_lengths(self._half_placed), sums, True, chosen)
        for record, group in zip(self._half_placed, chosen.tolist(), strict=True):
            self._private[groups[group]].append(record)
        self._half_placed = []

    def _in_turn(self, equals: npt.NDArray[np.int64], turn: int) -> npt.NDArray[np.int64]:
        """In the order in which ties are broken: the first of them is taken."""
        return np.roll(equals, -turn) if self._parameters.placement_ties == "rotate" else equals

    def _stay(self, turns: Sequence[TurnRecord] | deque[TurnRecord], node: str) -> Iterator[TurnRecord]:
        """Those whose prefill engine is not of `node`; the others wait again."""
        for record in turns:
            if self.prefill.place_of(record.prefill)[0] != node:
                yield record
                continue
            self.prefill.take(record.prefill, record.length, 0)
            record.move(TurnMove.TAKE_BACK)
            record.prefill = NOWHERE
            self.add(record)


def _lengths(turns: Sequence[TurnRecord] | deque[TurnRecord]) -> npt.NDArray[np.int64]:
    return np.array([record.length for record in turns], np.int64)
