"""Agents as a workload: how many, when they start, how long their tools take, and where their trajectories come from.

A kind of trajectories is a struct with its parameters, `found` and one entry in `AgentLoad`. `requests` of a workload
then counts nothing: what is sent are the turns of the agents. This file reads no file: the sessions of one are put in
when the experiment is read (`testbed.experiment.trace_files`), so a run's folder holds all that the run needs. It
knows no clock.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from testbed.units import Nanoseconds, from_seconds
from testbed.workload.arrivals import Arrivals
from testbed.workload.packed_trajectories import pack, unpack
from testbed.workload.paper_table import COLUMNS, Columns, draw, shapes
from testbed.workload.recorded_sessions import Input, cut_to, shrink_to
from testbed.workload.streams import derived_seed, stream
from testbed.workload.traces import TraceFormat
from testbed.workload.trajectories import Trajectory, for_agents, in_streams, of_lengths, originals, without_pauses

Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Turns: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


MOST_TURNS = 10_000_000
"""Turns of all agents of a run: beyond the paper's largest (48,000 agents of 157)."""


class _Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What all kinds have."""

    agents: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 8
    """How many agents there are."""
    arrivals: Arrivals | None = None
    """When agents start, their rate in agents per true second; left out, all start together (the paper's offline)."""
    tool_latency_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """True seconds from a turn's last token to the agent's next turn. Paper: zero."""
    prepended_tokens: Tokens = 64
    """Random tokens of the synthetic first round by which a copied trajectory differs from its original. Not stated in
    the paper; our choice: one block."""

    def starts(self, seed: int) -> list[Nanoseconds]:
        """When each agent starts, never decreasing."""
        if self.arrivals is None:
            return [0] * self.agents
        return self.arrivals.moments(self.agents, stream(seed, "agent arrivals"))

    @property
    def tool_latency(self) -> Nanoseconds:
        """`tool_latency_s` in nanoseconds."""
        return from_seconds(self.tool_latency_s)

    def found(self, seed: int) -> list[Trajectory]:
        """The trajectories that are no copies, at least one."""
        raise NotImplementedError

    def turn_counts(self, seed: int) -> list[int]:
        """How many turns each of the found trajectories has."""
        return [len(trajectory.rounds) for trajectory in self.found(seed)]

    def trajectories(self, seed: int) -> list[Trajectory]:
        """One for each agent."""
        return for_agents(self.found(seed), self.agents, seed, prepended=self.prepended_tokens)


class FixedTrajectories(_Load, frozen=True, tag="fixed"):
    """All agents alike, each with tokens of its own."""

    turns: Turns = 8
    """Turns of every agent."""
    first: Tokens = 1024
    """Tokens of the first prompt."""
    append: Tokens = 64
    """New tokens of every later prompt."""
    generate: Tokens = 32
    """Tokens of every answer."""

    def __post_init__(self) -> None:
        """Raises ValueError where the turns of all agents are more than a run can hold."""
        turns = self.agents * self.turns
        if turns > MOST_TURNS:
            words = f"{self.agents} agents of {self.turns} turns are {turns} turns"
            raise ValueError(f"{words}; at most {MOST_TURNS} are allowed")

    def turn_counts(self, seed: int) -> list[int]:  # noqa: ARG002  # one shape for all kinds
        """The same for all."""
        return [self.turns] * self.agents

    def found(self, seed: int) -> list[Trajectory]:
        """As many as there are agents."""
        lengths = [(self.first if number == 0 else self.append, self.generate) for number in range(self.turns)]
        return [of_lengths(derived_seed(seed, "agent", agent), lengths, "fixed") for agent in range(self.agents)]


class TableTrajectories(_Load, frozen=True, tag="table"):
    """Drawn so that all columns of DualPath's Table 2 hold together (`testbed.workload.paper_table`)."""

    row: Literal["32k", "48k", "64k"] = "64k"
    """Row of the table: the longest trajectory that it allows."""
    found_trajectories: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 500
    """How many are drawn; more agents get copies. Paper: 500."""
    max_tokens: Tokens | None = None
    """Longest trajectory in place of the row's: all lengths shrink alike, for a small emulation."""
    turns: Annotated[float, msgspec.Meta(ge=1, le=100_000)] | None = None
    """Mean number of turns in place of the row's; each turn gets longer as there are fewer."""

    def found(self, seed: int) -> list[Trajectory]:
        """`found_trajectories` of them."""
        drawn = draw(self._columns, self.found_trajectories, seed)
        return [
            of_lengths(derived_seed(seed, "agent", number), lengths, f"table {self.row}")
            for number, lengths in enumerate(drawn)
        ]

    def turn_counts(self, seed: int) -> list[int]:
        """How many turns each of them has."""
        return [turns for _, turns in shapes(self._columns, self.found_trajectories, seed)]

    @property
    def _columns(self) -> Columns:
        return COLUMNS[self.row].scaled(self.max_tokens, self.turns)


class FileTrajectories(_Load, frozen=True, tag="file"):
    """Recorded sessions (`testbed.workload.traces`)."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    """File, or folder of files, beneath the experiment's own folder or fixtures/traces."""
    format: TraceFormat
    """Who wrote it."""
    input: Input
    """Whether a recorded input length is the whole prompt (cumulative) or what the turn adds to it (delta). Recordings
    do not say it, so there is no default."""
    most_sessions: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 500
    """So many sessions are taken, the first ones; more agents get copies. Paper: 500."""
    max_tokens: Tokens | None = None
    """Longest trajectory; None leaves the lengths as they were recorded."""
    fit: Literal["shrink", "cut"] = "shrink"
    """How longer ones are made to fit: all lengths of all sessions in one proportion, or without the turns that go
    beyond. Not stated in the paper."""
    pauses: bool = False
    """Whether turns wait as long as tools and people took in the recording, `tool_latency_s` aside. Paper: no."""
    packed: str = ""
    """The sessions themselves; put in when the experiment is read, never written by hand."""

    def __post_init__(self) -> None:
        """Raises ValueError where `packed` holds what was read by other rules."""
        if self.packed and unpack(self.packed).rules != self._rules:
            raise ValueError("path, format, input and most_sessions say how the file is read, and it has been read")

    @property
    def _rules(self) -> list[str]:
        return [self.path, self.format, self.input, str(self.most_sessions)]

    def filled(self, sessions: list[Trajectory]) -> FileTrajectories:
        """The same with the sessions in it. Raises ValueError if they are too many to carry along."""
        return msgspec.structs.replace(self, packed=pack(self._rules, sessions))

    def found(self, seed: int) -> list[Trajectory]:
        """The sessions, made to fit. Raises ValueError if the file was not read, or nothing fits."""
        if not self.packed:
            raise ValueError(f"{self.path} has not been read")
        sessions = unpack(self.packed).sessions
        if self.max_tokens is not None:
            shape = cut_to if self.fit == "cut" else shrink_to
            sessions = shape(sessions, self.max_tokens)
            if not sessions:
                raise ValueError(f"{self.path} has no session whose first turn fits in {self.max_tokens} tokens")
        if not self.pauses:
            sessions = [without_pauses(session) for session in sessions]
        return in_streams(sessions, lambda number: derived_seed(seed, "recorded", number))


AgentLoad: TypeAlias = FixedTrajectories | TableTrajectories | FileTrajectories
"""Every kind of agents there is."""


def turns_in(load: AgentLoad, seed: int) -> int:
    """How many requests the agents will send in all."""
    counts = load.turn_counts(seed)
    copies = max(0, load.agents - len(counts))
    return sum(counts[chosen] for chosen in originals(len(counts), load.agents, seed)) + copies
