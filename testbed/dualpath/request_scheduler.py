"""The central request scheduler: gives every turn a prefill and a decode engine and a read path (DualPath 6.1).

Leader engines fetch; a fetch is when turns are placed (pull model). A turn gets its prefill engine, then its decode
engine (`placement_queues`), then its read path (`reading_sides`), and goes to both nodes. Tokens of answers pass
through here to the agents. The paper has no failures; here a lost node's turns are placed again.

The machine knows nodes by their letters only: no wire, no KV, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from testbed.dualpath.engine_messages import LEADER
from testbed.dualpath.letters import AnyLetter
from testbed.dualpath.local_messages import SCHEDULER
from testbed.dualpath.mail import MAIL, PeerLost, Post
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.placement_queues import PlacementQueues
from testbed.dualpath.profiled import Profiled
from testbed.dualpath.reading_sides import ReadingSides
from testbed.dualpath.turn_letters import (
    Assign,
    BlocksPersisted,
    FetchWork,
    NodeGone,
    Produced,
    ProducedMany,
    ReadQueued,
    TurnEnded,
)
from testbed.dualpath.turn_record import NOWHERE, Attempt, TurnMove, TurnRecord
from testbed.events.kv_events import NodeLost, PathChosen, TurnPlaced, TurnReplaced, TurnStage
from testbed.machine import Deliver, Effect, Effects, Emit, Event, Message, UnexpectedMessage
from testbed.serving.turns import SubmitTurn, Turn, TurnAdvanced, TurnFailed
from testbed.units import Nanoseconds

CLIENT = "client"
"""Where agents' messages go: no machine of this node, so the front network."""
_MOST_RUNS = 180
"""Runs of a turn's prompt and answer that fit into a letter of 4,096 bytes with all else: at most 20 bytes each."""


class RequestScheduler:
    """See the head of this file. `prefill` and `decode` name the nodes of each role."""

    name = SCHEDULER

    def __init__(
        self, parameters: DualPathParameters, known: Profiled, prefill: Sequence[str], decode: Sequence[str]
    ) -> None:
        self._parameters = parameters
        self._known = known
        self.queues = PlacementQueues(parameters, known, prefill, decode)
        self._sides = ReadingSides(parameters)
        self._open: dict[str, TurnRecord] = {}
        """Turns that are not ended, by their own name."""
        self._attempts: dict[str, Attempt] = {}
        """Assignments that still count at an engine."""
        self._gone: set[str] = set()
        """Those that were taken back and are over: a node that was taken for lost may still speak of them."""
        self._last: dict[int, Attempt] = {}
        """Of each agent: the attempt of its last turn, while that still counts at an engine."""
        self._held: dict[int, list[TurnRecord]] = {}
        """Each agent's turns that wait until its last one has persisted all."""
        self._stored: dict[int, tuple[int, int]] = {}
        """Of each agent: its last turn of which blocks are known to be in storage, and how many Full Blocks."""
        self._arrivals = 0
        self._nodes = (*prefill, *decode)
        self._heard: dict[str, Nanoseconds] | None = None
        """When each node that is not lost was heard of last; None before the first message."""
        self._patience = parameters.lost_after_periods * parameters.fetch_period
        self._effects: list[Effect] = []

    @property
    def unfinished(self) -> int:
        """Turns that are neither answered nor failed, and attempts that still hold something."""
        return len(self._open) + sum(attempt.void for attempt in self._attempts.values())

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes agents' turns, leaders' letters and `PeerLost`. Raises `UnexpectedMessage`, having changed nothing."""
        self._effects = []
        if self._heard is None:
            self._heard = dict.fromkeys(self._nodes, now)
        match message:
            case SubmitTurn():
                self._submit(now, message)
            case FetchWork() | ReadQueued() | TurnEnded():
                self._from_node(now, message)
            case Produced():
                self._advance([(message.name, message.tokens)], message)
            case ProducedMany():
                self._advance([(part.name, part.tokens) for part in message.turns], message)
            case BlocksPersisted():
                self._persisted(message)
            case NodeGone(node=node) | PeerLost(peer=node):
                self._lost(now, node)
            case _:
                raise UnexpectedMessage(self.name, message)
        return self._effects

    def wake(self, now: Nanoseconds) -> Effects:
        """Nodes that have not fetched for too long are lost."""
        self._effects = []
        for node in [node for node, heard in (self._heard or {}).items() if heard + self._patience <= now]:
            self._lost(now, node)
        return self._effects

    def deadline(self) -> Nanoseconds | None:
        """When the next silent node is lost."""
        return min(self._heard.values()) + self._patience if self._heard else None

    # --- turns come in ------------------------------------------------------------------------------------------

    def _submit(self, now: Nanoseconds, message: SubmitTurn) -> None:
        turn = message.turn
        if turn.name in self._open or turn.name in self._attempts:
            raise UnexpectedMessage(self.name, message, f"with {turn.name} open")
        blocks = -(-(turn.prompt_tokens + turn.generate_tokens - 1) // self._parameters.block_tokens)
        if reason := self._never(turn, blocks):
            self._emit(TurnStage(turn.name, "failed", reason))
            self._tell(TurnFailed(turn.name, reason))
            return
        record = TurnRecord(turn, now, self._arrivals, blocks)
        self._arrivals += 1
        self._open[turn.name] = record
        self._emit(TurnStage(turn.name, "queued"))
        parameters = self._parameters
        waits = parameters.unstored_context == "wait" and parameters.persist and parameters.read_path != "bypass"
        if waits and turn.agent in self._last:
            self._held.setdefault(turn.agent, []).append(record)
            return
        self.queues.add(record)
        self._place_in_turn(now)

    def _never(self, turn: Turn, blocks: int) -> str:
        """Why no engine can ever serve the turn; empty if one can."""
        known, prompt = self._known, -(-turn.prompt_tokens // self._parameters.block_tokens)
        for what, needed, room in (
            ("HBM of a decode engine", blocks, known.hbm_blocks),
            ("PE buffer", prompt, known.prefill_buffer_blocks),
            ("DE buffer", prompt, known.decode_buffer_blocks),
        ):
            if needed > room and not (self._parameters.read_path == "bypass" and "buffer" in what):
                return f"{needed} blocks of KV do not fit into the {what} of {room}"
        runs = len(turn.prompt) + len(turn.answer)
        if runs > _MOST_RUNS:
            return f"{runs} runs of tokens do not fit into a letter, which has room for {_MOST_RUNS}"
        return self.queues.nobody_left()

    def _place_in_turn(self, now: Nanoseconds) -> None:
        """Without scheduling: all that wait go straight to the next engines in turn."""
        if self._parameters.placement == "round_robin" and not self.queues.nobody_left():
            for record, engine in self.queues.place_in_turn():
                self._assign(now, record, engine)

    # --- leaders fetch ------------------------------------------------------------------------------------------

    def _from_node(self, now: Nanoseconds, letter: FetchWork | ReadQueued | TurnEnded) -> None:
        if letter.node not in self._nodes:
            raise UnexpectedMessage(self.name, letter, f"without a node {letter.node}")
        if self._heard is None or letter.node not in self._heard:
            return  # It is lost: whatever it says comes too late.
        match letter:
            case TurnEnded():
                self._ended(now, letter)
            case ReadQueued():
                self.queues.read_queues.reported(letter.node, letter.tokens, letter.taken)
            case FetchWork():
                self._fetch(now, letter)
        self._heard[letter.node] = now

    def _fetch(self, now: Nanoseconds, letter: FetchWork) -> None:
        ledger = self.queues.prefill if letter.role == "prefill" else self.queues.decode
        members = ledger.members.get(letter.node)
        if members is None or [report.engine for report in letter.engines] != list(range(len(members))):
            raise UnexpectedMessage(self.name, letter, f"with other engines at {letter.node}")
        self.queues.read_queues.reported(letter.node, letter.read_queue, letter.taken)
        if letter.role == "prefill":
            counted = self._parameters.reads_counted_at == "assignment" and self._sides.prefill_may_read
            size = self._parameters.block_tokens if counted else 0
            self.queues.place_prefill(letter.node, lambda record: self._hits(record) * size)
            return
        if self._parameters.hbm_counted_at == "report":
            ledger.free[members] = [report.free_blocks for report in letter.engines]
        for record, engine in self.queues.place_decode(letter.node):
            self._assign(now, record, engine)

    # --- a turn has its engines ---------------------------------------------------------------------------------

    def _hits(self, record: TurnRecord) -> int:
        """Full Blocks of the prompt that are read: what storage holds, or the leading share that is fetched of it."""
        return self._stored_blocks(record) * self._parameters.fetch_percent // 100

    def _stored_blocks(self, record: TurnRecord) -> int:
        """Full Blocks of the prompt that storage holds. The last token of a prompt is always computed."""
        turn, size = record.turn, self._parameters.block_tokens
        most = min(turn.context_tokens, turn.prompt_tokens - 1) // size
        if self._parameters.read_path == "bypass":
            return most
        return min(most, self._stored.get(turn.agent, (0, 0))[1])

    def _assign(self, now: Nanoseconds, record: TurnRecord, engine: int) -> None:
        record.move(TurnMove.GIVE_DECODE)
        attempt = Attempt(record, record.prefill, engine)
        self._attempts[attempt.name] = self._last[record.turn.agent] = attempt
        (pe, prefill), (de, decode) = self.queues.prefill.place_of(attempt.prefill), self.queues.decode.place_of(engine)
        hits = self._hits(record)
        queues = self.queues.read_queues.of(pe), self.queues.read_queues.of(de)
        path, here = self._sides.choose(pe, de, hits, *queues)
        there = 0 if path == "none" else hits - here
        turn, tokens = record.turn, self._parameters.block_tokens
        counted = tokens if self._parameters.reads_counted_at == "assignment" else 0
        self.queues.read_queues.assigned(pe, here * counted)
        self.queues.read_queues.assigned(de, there * counted)
        waited = now - record.arrived
        self._emit(TurnPlaced(attempt.name, pe, prefill, de, decode, hits * tokens, record.length, waited))
        self._emit(PathChosen(attempt.name, path, here, there, *queues))
        self._emit(TurnStage(attempt.name, "placed"))
        named = msgspec.structs.replace(turn, name=attempt.name)
        letter = Assign(named, pe, prefill, de, decode, here, hits, self._stored_blocks(record))
        self._post(pe, letter)
        self._post(de, letter)

    def _persisted(self, letter: BlocksPersisted) -> None:
        if (attempt := self._attempt(letter.name, letter)) is None:
            return
        turn = attempt.record.turn
        number, blocks = self._stored.get(turn.agent, (-1, 0))
        if turn.number >= number:
            self._stored[turn.agent] = turn.number, max(letter.blocks, blocks if turn.number == number else 0)

    def _advance(self, parts: Sequence[tuple[str, int]], letter: Produced | ProducedMany) -> None:
        attempts = [(self._attempt(name, letter), tokens) for name, tokens in parts]
        for attempt, tokens in attempts:
            if attempt is not None and not 0 < tokens <= attempt.left:
                raise UnexpectedMessage(self.name, letter, f"with {attempt.left} tokens of {attempt.name} to come")
        for attempt, tokens in attempts:
            if attempt is not None and not attempt.void and (fresh := attempt.advance(tokens)):
                record = attempt.record
                self._tell(TurnAdvanced(record.turn.name, fresh, record.answered))

    # --- turns end ----------------------------------------------------------------------------------------------

    def _ended(self, now: Nanoseconds, letter: TurnEnded) -> None:
        if (attempt := self._attempt(letter.name, letter)) is None:
            return
        at = letter.node, letter.engine
        if attempt.prefill != NOWHERE and self.queues.prefill.place_of(attempt.prefill) == at:
            self._release(attempt, prefill=True)
        elif attempt.decode != NOWHERE and self.queues.decode.place_of(attempt.decode) == at:
            self._release(attempt, prefill=False)
        else:
            raise UnexpectedMessage(
                self.name, letter, f"with {letter.name} not at engine {letter.engine} of {letter.node}"
            )
        record = attempt.record
        if attempt.void or record.answered:
            pass
        elif letter.failure:
            # What could not be read, or fails a second time, is computed anew.
            if letter.lost_blocks or record.attempts > 1:
                self._stored.pop(record.turn.agent, None)
            self._take_back(now, [attempt], letter.failure)
        elif attempt.over:
            self._take_back(now, [attempt], f"ended after {attempt.produced} of {record.turn.generate_tokens} tokens")
        if attempt.over:
            self._forget(now, attempt)

    def _release(self, attempt: Attempt, *, prefill: bool) -> None:
        """One side is done: it counts no more at its engine."""
        record = attempt.record
        if prefill:
            self.queues.prefill.take(attempt.prefill, record.length, 0)
            attempt.prefill = NOWHERE
        else:
            self.queues.decode.take(attempt.decode, record.length, record.blocks)
            attempt.decode = NOWHERE

    def _forget(self, now: Nanoseconds, attempt: Attempt) -> None:
        del self._attempts[attempt.name]
        agent = attempt.record.turn.agent
        if self._last.get(agent) is attempt:
            del self._last[agent]
            self._go_on(now, self._held.pop(agent, []))
        if attempt.void:
            self._gone.add(attempt.name)
            return
        attempt.record.move(TurnMove.END)
        del self._open[attempt.record.turn.name]

    def _go_on(self, now: Nanoseconds, records: Sequence[TurnRecord]) -> None:
        """Turns whose context is in storage now."""
        for record in records:
            if nobody := self.queues.nobody_left():
                self._fail(record, nobody)
            else:
                self.queues.add(record)
        self._place_in_turn(now)

    def _take_back(self, now: Nanoseconds, attempts: Sequence[Attempt], reason: str) -> None:
        """Attempts that came to nothing: their turns wait again, in order of arrival, or fail."""
        for attempt in attempts:
            attempt.void = True
            record = attempt.record
            again = record.attempts < self._parameters.attempts and not self.queues.nobody_left()
            self._emit(TurnReplaced(record.turn.name, reason, again))
            if again:
                record.move(TurnMove.TAKE_BACK)
                record.prefill = NOWHERE
                self.queues.add(record)
            else:
                self._fail(record, reason)
        self._place_in_turn(now)

    def _fail(self, record: TurnRecord, reason: str) -> None:
        record.move(TurnMove.FAIL)
        del self._open[record.turn.name]
        self._emit(TurnStage(record.turn.name, "failed", reason))
        self._tell(TurnFailed(record.turn.name, reason))

    def _lost(self, now: Nanoseconds, node: str) -> None:
        """A node is gone: its engines leave their group, its turns are placed again, all other leaders are told."""
        if self._heard is None or node not in self._heard:
            return  # It is known to be lost, or it is none of the engines' nodes.
        del self._heard[node]
        reason = f"{node} does not answer"
        self._emit(NodeLost(node, self.name))
        for other in self._heard:
            self._post(other, NodeGone(node))
        self.queues.lose(node)
        self._take_back(now, self._cut_off(now, node), reason)
        if nobody := self.queues.nobody_left():
            for record in self.queues.drain():
                self._fail(record, nobody)

    def _cut_off(self, now: Nanoseconds, node: str) -> list[Attempt]:
        """Attempts of which an open side is on `node`: that side is over. Gives those that must be redone."""
        redone = []
        for attempt in list(self._attempts.values()):
            prefill = attempt.prefill != NOWHERE and self.queues.prefill.place_of(attempt.prefill)[0] == node
            decode = attempt.decode != NOWHERE and self.queues.decode.place_of(attempt.decode)[0] == node
            if not prefill and not decode:
                continue
            self._release(attempt, prefill=prefill)
            if not attempt.void and not attempt.record.answered:
                redone.append(attempt)
                attempt.void = True
            if attempt.over:
                self._forget(now, attempt)
        return redone

    # --- effects ------------------------------------------------------------------------------------------------

    def _attempt(self, name: str, letter: Message) -> Attempt | None:
        """What the letter speaks of; None for what is of no interest any more. Raises `UnexpectedMessage`."""
        attempt = self._attempts.get(name)
        if attempt is None and name not in self._gone:
            raise UnexpectedMessage(self.name, letter, f"without a turn {name}")
        return attempt

    def _emit(self, event: Event) -> None:
        self._effects.append(Emit(event))

    def _tell(self, message: TurnAdvanced | TurnFailed) -> None:
        self._effects.append(Deliver(CLIENT, message))

    def _post(self, peer: str, letter: AnyLetter) -> None:
        self._effects.append(Deliver(MAIL, Post(peer, LEADER, letter, self.name)))
