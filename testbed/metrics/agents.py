"""Job completion time: of each agent, from its scheduled start to the end of its last turn, and of the run.

From agent.started and agent.finished. Of the run it is from the first start to the last end (paper DualPath, §8: "JCT
of n agents started together"). An agent that gave up has an end too; it is counted as failed and is in no
distribution of completion times. Knows the clients' events, nothing of servers.
"""

from __future__ import annotations

import msgspec

from testbed.events.kv_events import AgentFinished, AgentStarted
from testbed.events.log import Record
from testbed.machine import Event
from testbed.units import Nanoseconds


class Agent(msgspec.Struct):
    """One agent's job so far."""

    start: Nanoseconds
    """As scheduled."""
    turns: int
    """That it is to send."""
    end: Nanoseconds | None = None
    answered: int = 0
    outcome: str = ""
    """finished or failed; empty while it is at work."""


class AgentState(msgspec.Struct):
    """Agents by name; also the result."""

    agents: dict[str, Agent] = {}


class AgentFold:
    """Follows each agent."""

    state = AgentState
    takes: frozenset[type[Event]] = frozenset({AgentStarted, AgentFinished})

    def start(self) -> AgentState:
        """No agent yet."""
        return AgentState()

    def step(self, state: AgentState, record: Record) -> AgentState:
        """Takes an agent's beginning or end; an end without a beginning is passed over."""
        match record.event:
            case AgentStarted(agent=name, turns=turns, scheduled=scheduled):
                state.agents[name] = Agent(scheduled, turns)
            case AgentFinished(agent=name, outcome=outcome, turns=turns) if name in state.agents:
                agent = state.agents[name]
                agent.end, agent.answered, agent.outcome = record.t, turns, outcome
        return state

    def result(self, state: AgentState) -> AgentState:
        """A copy of all agents."""
        return AgentState({name: msgspec.structs.replace(agent) for name, agent in state.agents.items()})


def job_time(state: AgentState) -> Nanoseconds | None:
    """Of the whole run; None until every agent has ended."""
    ends = [agent.end for agent in state.agents.values()]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return None
    return max(known) - min(agent.start for agent in state.agents.values())


def job_times(state: AgentState) -> list[Nanoseconds]:
    """Of each agent that has every answer, in the order in which they began."""
    return [
        agent.end - agent.start
        for agent in state.agents.values()
        if agent.end is not None and agent.outcome == "finished"
    ]


def half_ended(state: AgentState) -> Nanoseconds | None:
    """The moment from which on fewer than half of the agents were at work; None while there is none."""
    ends = sorted(agent.end for agent in state.agents.values() if agent.end is not None)
    place = len(state.agents) // 2
    return ends[place] if len(ends) > place else None
