"""A central scheduler alone on a table: leaders and agents are the test itself, by letters."""

import msgspec

from testbed.dualpath.mail import Post
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.profiled import Profiled
from testbed.dualpath.request_scheduler import CLIENT, RequestScheduler
from testbed.dualpath.turn_letters import (
    Assign,
    BlocksPersisted,
    EngineReport,
    FetchWork,
    NodeGone,
    Produced,
    ReadQueued,
    TurnEnded,
)
from testbed.machine import Deliver, Emit
from testbed.serving.turns import SubmitTurn, TokenRun, Turn, TurnAdvanced, TurnFailed

BLOCK = 64


def a_turn(name="a0000.t000", *, agent=0, number=0, context=0, append=640, answer=4):
    """A turn of one agent whose tokens are one stream."""
    prompt = (TokenRun(agent + 1, 0, context + append),)
    return Turn(name, agent, number, prompt, context, (TokenRun(agent + 1, context + append, answer),))


class Desk:
    """Sends what agents and leaders send, and sorts what comes back."""

    def __init__(self, prefill=1, decode=1, engines=2, known=None, **parameters):
        self.pes = [f"pe{n}" for n in range(prefill)]
        self.des = [f"de{n}" for n in range(decode)]
        # Engines here report no free HBM unless a test says so.
        parameters = {"hbm_counted_at": "assignment", **parameters}
        self.parameters = DualPathParameters(engines_per_node=engines, **parameters)
        self.known = msgspec.structs.replace(Profiled(100_000, 10_000, 1_000, 1_000, 1_000), **(known or {}))
        self.machine = RequestScheduler(self.parameters, self.known, self.pes, self.des)
        self.now = 0
        self.lost = set()
        self.posts, self.told, self.events = [], [], []

    def take(self, message):
        """Hands over one message and keeps the effects."""
        return self._sort(self.machine.receive(self.now, message))

    def wake(self):
        return self._sort(self.machine.wake(self.now))

    def _sort(self, effects):
        for effect in effects:
            match effect:
                case Deliver(to="mail", message=Post(peer=peer, to="leader", letter=letter, writer="api")):
                    self.posts.append((peer, letter))
                case Deliver(to=to, message=TurnAdvanced() | TurnFailed() as message) if to == CLIENT:
                    self.told.append(message)
                case Emit(event=event):
                    self.events.append(event)
                case _:
                    raise AssertionError(effect)
        return effects

    def submit(self, *turns):
        for turn in turns:
            self.take(SubmitTurn(turn))

    def fetch(self, node, read_queue=0, free=0, taken=-1):
        role = "prefill" if node.startswith("pe") else "decode"
        reports = tuple(EngineReport(e, 0, 0, free) for e in range(self.parameters.engines_per_node))
        self.take(FetchWork(node, role, reports, read_queue, taken))

    def fetch_all(self):
        for node in [*self.pes, *self.des]:
            if node not in self.lost:
                self.fetch(node)

    @property
    def assigned(self):
        """Every decision so far, once, in order."""
        out = []
        for peer, letter in self.posts:
            if isinstance(letter, Assign) and peer == letter.prefill_node:
                out.append(letter)
        return out

    def gone(self):
        """(told node, lost node) of all letters about lost nodes."""
        return [(peer, letter.node) for peer, letter in self.posts if isinstance(letter, NodeGone)]

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def end(self, assign, *, prefill=True, decode=True, failure="", lost_blocks=False):
        name = assign.turn.name
        if prefill:
            self.take(TurnEnded(name, assign.prefill_node, assign.prefill_engine, failure, lost_blocks))
        if decode:
            self.take(TurnEnded(name, assign.decode_node, assign.decode_engine, failure))

    def serve(self, assign, *, persisted=None):
        """A turn runs to its end: all tokens, KV in storage, both sides done."""
        turn = assign.turn
        for _ in range(turn.generate_tokens):
            self.take(Produced(turn.name, 1))
        full = (turn.prompt_tokens + turn.generate_tokens - 1) // BLOCK
        self.take(BlocksPersisted(turn.name, full if persisted is None else persisted))
        self.end(assign)

    def queue(self, node, tokens, taken=-1):
        self.take(ReadQueued(node, tokens, taken))

    def empty(self):
        """Whether nothing is held anywhere: conservation at drain."""
        queues = self.machine.queues
        for ledger in (queues.prefill, queues.decode):
            for members in ledger.members.values():
                if ledger.tokens[members].any() or ledger.sequences[members].any():
                    return False
        left = queues.decode.members.values()
        full = all((queues.decode.free[members] == self.known.hbm_blocks).all() for members in left)
        return full and not self.machine.unfinished and not queues.drain()


def with_history(desk, agents=1, context=6_400):
    """Agents whose first turn is in storage; gives their second turns."""
    for agent in range(agents):
        desk.submit(a_turn(f"a{agent:04d}.t000", agent=agent, append=context, answer=1))
        desk.fetch_all()
        desk.serve(desk.assigned[-1], persisted=context // BLOCK)
    return [a_turn(f"a{agent:04d}.t001", agent=agent, number=1, context=context, append=64) for agent in range(agents)]
