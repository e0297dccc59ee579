"""What every leader engine does beside its turns: fetches work for its group, and says how much is still to be read.

Leaders fetch regularly and proactively (pull model; design dualpath 1.2), every `fetch_period`, and at once when a turn
has ended. The disk-reading queue is counted in tokens, from the moment at which a turn is assigned. Knows turns by
name and size only.
"""

from __future__ import annotations

from testbed.dualpath.local_messages import SCHEDULER
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.turn_letters import EngineReport, FetchWork, ReadQueued
from testbed.events.kv_events import ReadQueueMeasured
from testbed.machine import Deliver, Effect, Emit
from testbed.units import Nanoseconds

TELL_TOKENS = 4_096
"""Change of the read queue that is told between two fetches. Our choice: about an eighth of a long turn's hit."""


class Fetching:
    """Of the leader of `node`, whose engines are of one `role`."""

    def __init__(self, node: str, role: str, scheduler: str, parameters: DualPathParameters) -> None:
        self._node = node
        self._role = role
        self._scheduler = scheduler
        self._period = parameters.fetch_period
        self._engines = parameters.engines_per_node
        self.free_blocks = [0] * parameters.engines_per_node
        """Free KV blocks of each engine's HBM, where the role has that."""
        self.due: Nanoseconds = 0
        """When the next fetch is."""
        self._taken = 0
        """Turns that were assigned so far."""
        self._turns: dict[str, tuple[int, int]] = {}
        """Engine and tokens of each turn that is assigned and not finished."""
        self._reads: dict[str, int] = {}
        """Tokens that each turn's reads still have to bring."""
        self._queue = 0
        self._told = 0

    @property
    def read_queue(self) -> int:
        """Tokens that the node's storage reads still have to bring."""
        return self._queue

    def add(self, name: str, engine: int, tokens: int, read_tokens: int) -> None:
        """A turn is assigned."""
        self._taken += 1
        self._turns[name] = (engine, tokens)
        if read_tokens:
            self._reads[name] = read_tokens
            self._queue += read_tokens

    def arrived(self, name: str, tokens: int) -> None:
        """So many tokens less are to be read for a turn."""
        left = self._reads.get(name, 0)
        self._reads[name] = left - min(left, tokens)
        self._queue -= min(left, tokens)

    def read(self, name: str) -> None:
        """Nothing more is to be read for a turn."""
        self._queue -= self._reads.pop(name, 0)

    def remove(self, now: Nanoseconds, name: str) -> None:
        """A turn has ended: its engine may take another one."""
        self.read(name)
        del self._turns[name]
        self.due = now

    def told(self) -> list[Effect]:
        """Tells the scheduler of the read queue if it has changed by much, or is empty now."""
        change = abs(self._queue - self._told)
        if not change or (change < TELL_TOKENS and self._queue):
            return []
        return [*self._measured(), self._post(ReadQueued(self._node, self._queue, self._taken))]

    def fetch(self, now: Nanoseconds) -> list[Effect]:
        """The fetch that is due, if one is."""
        if now < self.due:
            return []
        self.due = now + self._period
        sequences, tokens = [0] * self._engines, [0] * self._engines
        for engine, size in self._turns.values():
            sequences[engine] += 1
            tokens[engine] += size
        reports = tuple(
            EngineReport(engine, sequences[engine], tokens[engine], self.free_blocks[engine])
            for engine in range(self._engines)
        )
        effects = self._measured() if self._queue != self._told else []
        return [*effects, self._post(FetchWork(self._node, self._role, reports, self._queue, self._taken))]

    def _measured(self) -> list[Effect]:
        self._told = self._queue
        return [Emit(ReadQueueMeasured(self._queue))]

    def _post(self, letter: FetchWork | ReadQueued) -> Deliver:
        return Deliver(MAIL, Post(self._scheduler, SCHEDULER, letter))
