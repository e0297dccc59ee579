"""The agents as a machine: each plays its trajectory, closed loop (DualPath A.3, and 1.11 for offline and online).

An agent sends its next turn a tool latency after the last token of the turn before; the first when the load says so.
Latency is measured here, on the agents' side, by the events of an open-loop client: `request.sent` with its lag,
`token.received`, and one `request.finished` or `request.failed` for each turn; `agent.started` and `agent.finished`
hold what a job's completion time needs. An agent whose turn fails sends no more: its next prompt would need the answer.

It speaks to `api` by the messages of `testbed.serving.turns` and does not know what serves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from heapq import heapify, heappop, heappush

from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent, TokenReceived
from testbed.events.kv_events import AgentFinished, AgentStarted
from testbed.machine import Deliver, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.serving.turns import SubmitTurn, Turn, TurnAdvanced, TurnFailed
from testbed.units import Nanoseconds
from testbed.workload.agent_loads import AgentLoad
from testbed.workload.trajectories import Replay, Trajectory, agent_name

AGENTS = "agents"
"""Name of the machine."""


class Progress(Enum):
    """How far an agent is."""

    WAITING = "waiting"
    """For its start, or for its tool."""
    ASKING = "asking"
    """No token of its turn's answer is there yet."""
    STREAMING = "streaming"
    """Some are."""
    FINISHED = "finished"
    FAILED = "failed"


class Step(Enum):
    """What can happen to an agent."""

    SEND = "send"
    TOKENS = "tokens"
    LAST_TOKENS = "last tokens"
    """Of a turn that another one follows."""
    LAST_TURN = "last turn"
    """The last tokens of the last turn."""
    FAILURE = "failure"


MOVES: dict[tuple[Progress, Step], Progress] = {
    (Progress.WAITING, Step.SEND): Progress.ASKING,
    (Progress.ASKING, Step.TOKENS): Progress.STREAMING,
    (Progress.ASKING, Step.LAST_TOKENS): Progress.WAITING,
    (Progress.ASKING, Step.LAST_TURN): Progress.FINISHED,
    (Progress.ASKING, Step.FAILURE): Progress.FAILED,
    (Progress.STREAMING, Step.TOKENS): Progress.STREAMING,
    (Progress.STREAMING, Step.LAST_TOKENS): Progress.WAITING,
    (Progress.STREAMING, Step.LAST_TURN): Progress.FINISHED,
    (Progress.STREAMING, Step.FAILURE): Progress.FAILED,
}
"""Every move there is; an answer to a turn that is over is a fault of the server's and raises."""


class _Agent:
    """One agent's place in its trajectory."""

    __slots__ = ("due", "progress", "received", "replay", "start", "turn")

    def __init__(self, number: int, trajectory: Trajectory, start: Nanoseconds) -> None:
        self.replay = Replay(number, trajectory)
        self.start = start
        self.due = start
        self.progress = Progress.WAITING
        self.turn: Turn | None = None
        self.received = 0


class Agents:
    """Plays `trajectories`, agent i from `starts[i]` on, against `api`. Raises ValueError unless they are as many."""

    def __init__(
        self,
        trajectories: Sequence[Trajectory],
        starts: Sequence[Nanoseconds],
        *,
        tool_latency: Nanoseconds = 0,
        name: str = AGENTS,
        api: str = "api",
    ) -> None:
        self.name = name
        self._api = api
        self._latency = tool_latency
        pairs = zip(trajectories, starts, strict=True)
        self._agents = [_Agent(number, trajectory, start) for number, (trajectory, start) in enumerate(pairs)]
        self._due = [(agent.due, number) for number, agent in enumerate(self._agents)]
        heapify(self._due)
        self._open: dict[str, int] = {}
        self._left = sum(agent.replay.left for agent in self._agents)
        self.requests = self._left
        """How many turns there are in all."""

    @property
    def done(self) -> bool:
        """True once every turn has ended."""
        return self._left == 0

    @property
    def ended(self) -> int:
        """How many turns have finished, failed, or will not be sent since an earlier one failed."""
        return self.requests - self._left

    @property
    def remaining(self) -> int:
        """How many turns have not ended."""
        return self._left

    def progress(self, agent: int) -> Progress:
        """How far an agent is. Raises IndexError."""
        return self._agents[agent].progress

    def deadline(self) -> Nanoseconds | None:
        """When the next agent starts, or has its tool's answer."""
        return self._due[0][0] if self._due else None

    def wake(self, now: Nanoseconds) -> Effects:
        """Sends every turn that is due."""
        effects: list[Effect] = []
        while self._due and self._due[0][0] <= now:
            _, number = heappop(self._due)
            effects += self._send(now, number)
        return effects

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a server's answer to an open turn. Raises `UnexpectedMessage` for any other, and for an answer of
        another length than the turn's.
        """
        match message:
            case TurnAdvanced():
                return self._advance(now, message)
            case TurnFailed():
                return self._fail(now, message)
            case _:
                raise UnexpectedMessage(self.name, message)

    def _send(self, now: Nanoseconds, number: int) -> Effects:
        agent = self._agents[number]
        effects: list[Effect] = []
        if agent.replay.number == 0:
            effects.append(Emit(AgentStarted(agent_name(number), turns=agent.replay.left, scheduled=agent.start)))
        agent.progress = MOVES[agent.progress, Step.SEND]
        turn = agent.replay.turn()
        agent.turn, agent.received = turn, 0
        self._open[turn.name] = number
        sent = RequestSent(
            name=turn.name,
            scheduled=agent.due,
            lag=now - agent.due,
            prompt_tokens=turn.prompt_tokens,
            max_tokens=turn.generate_tokens,
        )
        return (*effects, Emit(sent), Deliver(self._api, SubmitTurn(turn)))

    def _advance(self, now: Nanoseconds, message: TurnAdvanced) -> Effects:
        number, agent, turn = self._asked(message.name, message)
        received = agent.received + message.tokens
        short = received < turn.generate_tokens
        if message.tokens < 0 or received > turn.generate_tokens or (message.done and short):
            raise UnexpectedMessage(self.name, message, f"{turn.name} has {agent.received} of {turn.generate_tokens}")
        effects: list[Effect] = []
        if message.tokens:
            effects.append(Emit(TokenReceived(turn.name, index=agent.received, count=message.tokens)))
        if not message.done:
            agent.progress = MOVES[agent.progress, Step.TOKENS]
            agent.received = received
            return effects
        effects.append(Emit(RequestFinished(turn.name, tokens=received, reason="length")))
        return (*effects, *self._end_turn(now, number, agent, turn))

    def _end_turn(self, now: Nanoseconds, number: int, agent: _Agent, turn: Turn) -> Effects:
        del self._open[turn.name]
        agent.turn = None
        self._left -= 1
        if agent.replay.left:
            agent.progress = MOVES[agent.progress, Step.LAST_TOKENS]
            agent.due = now + self._latency + agent.replay.pause
            heappush(self._due, (agent.due, number))
            # Without a tool latency the next turn leaves with the last token.
            return self.wake(now)
        agent.progress = MOVES[agent.progress, Step.LAST_TURN]
        return (self._finished(now, number, agent, "finished"),)

    def _fail(self, now: Nanoseconds, message: TurnFailed) -> Effects:
        number, agent, turn = self._asked(message.name, message)
        agent.progress = MOVES[agent.progress, Step.FAILURE]
        del self._open[turn.name]
        agent.turn = None
        self._left -= 1 + agent.replay.left
        return (
            Emit(RequestFailed(turn.name, error=message.reason)),
            self._finished(now, number, agent, "failed"),
        )

    def _finished(self, now: Nanoseconds, number: int, agent: _Agent, outcome: str) -> Emit:
        return Emit(
            AgentFinished(
                agent_name(number),
                outcome=outcome,
                turns=agent.replay.number - (outcome == "failed"),
                duration=now - agent.start,
            )
        )

    def _asked(self, name: str, message: Message) -> tuple[int, _Agent, Turn]:
        number = self._open.get(name)
        agent = self._agents[number] if number is not None else None
        if number is None or agent is None or agent.turn is None:
            raise UnexpectedMessage(self.name, message, f"{name}: not asked, or over")
        return number, agent, agent.turn


def agents_of(load: AgentLoad, seed: int) -> Agents:
    """The agents that a workload means; the same in a simulation and in an emulated client."""
    return Agents(load.trajectories(seed), load.starts(seed), tool_latency=load.tool_latency)
