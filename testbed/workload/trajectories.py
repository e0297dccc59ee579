"""An agent's trajectory, and the turns that it means (DualPath A.3; design dualpath 1.10).

A trajectory is rounds of an append A_i and an answer G_i. The context of round i + 1 is A_1 G_1 … A_i G_i, its prompt
is the context and then A_{i+1}, and the answer is forced to exactly G_{i+1}. A recorded session may also cut its
context back (a summary, another branch), so a round says how much of the context it keeps. When there are more agents
than trajectories, an agent gets a copy with a synthetic round put before it, so that nothing is shared between copies.

Tokens are runs of streams (`testbed.serving.turns`); there is no text here, and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from testbed.serving.turns import TokenRun, Turn, cut, joined, length
from testbed.units import Nanoseconds
from testbed.workload.streams import derived_seed, stream


class Round(msgspec.Struct, frozen=True, array_like=True):
    """One turn of a trajectory."""

    append: tuple[TokenRun, ...]
    """A_i: what follows the context in the prompt."""
    answer: tuple[TokenRun, ...]
    """G_i, at least one token."""
    kept: int = -1
    """Leading tokens of the context that the prompt begins with; -1: all of them, as in DualPath."""
    pause: Nanoseconds = 0
    """True time from the answer before to this turn, the load's own tool latency aside: what a recorded session's
    tools and people took."""


class Trajectory(msgspec.Struct, frozen=True, array_like=True):
    """What one agent will ask. At least one round."""

    rounds: tuple[Round, ...]
    origin: str = ""
    """Where it comes from, for people."""


class Replay:
    """One agent's way through its trajectory: gives its turns one after another."""

    __slots__ = ("_agent", "_context", "_rounds", "number")

    def __init__(self, agent: int, trajectory: Trajectory) -> None:
        self._agent = agent
        self._rounds = trajectory.rounds
        self._context: tuple[TokenRun, ...] = ()
        self.number = 0
        """Of the next turn."""

    @property
    def left(self) -> int:
        """Turns that are still to come."""
        return len(self._rounds) - self.number

    @property
    def pause(self) -> Nanoseconds:
        """The next turn's own pause."""
        return self._rounds[self.number].pause

    def turn(self) -> Turn:
        """The next turn; its answer counts as given from now on. Raises IndexError after the last."""
        here = self._rounds[self.number]
        context = self._context if here.kept < 0 else cut(self._context, 0, here.kept)
        prompt = joined((*context, *here.append))
        turn = Turn(turn_name(self._agent, self.number), self._agent, self.number, prompt, length(context), here.answer)
        self._context = joined((*prompt, *here.answer))
        self.number += 1
        return turn


def turn_name(agent: int, number: int) -> str:
    """Name of a turn, unique in a run."""
    return f"{agent_name(agent)}.t{number:03d}"


def agent_name(agent: int) -> str:
    """Name of an agent."""
    return f"a{agent:04d}"


def of_lengths(tokens: int, lengths: Sequence[tuple[int, int]], origin: str = "") -> Trajectory:
    """A trajectory of (append, answer) lengths whose tokens are one stream, `tokens`, from its beginning."""
    rounds = []
    place = 0
    for append, answer in lengths:
        rounds.append(Round((TokenRun(tokens, place, append),), (TokenRun(tokens, place + append, answer),)))
        place += append + answer
    return Trajectory(tuple(rounds), origin)


def for_agents(found: Sequence[Trajectory], agents: int, seed: int, *, prepended: int) -> list[Trajectory]:
    """A trajectory for each agent: those that were found, in order, then copies of ones that chance picks.

    A copy begins with a round of its own: `prepended` random tokens and one token of answer (DualPath A.3). What an
    agent gets does not depend on how many there are (known fault 17).
    """
    given = []
    for agent, chosen in enumerate(originals(len(found), agents, seed)):
        original = found[chosen]
        if agent < len(found):
            given.append(original)
            continue
        first = of_lengths(derived_seed(seed, "copied agent", agent), [(prepended, 1)]).rounds
        given.append(Trajectory((*first, *_behind(original.rounds, prepended + 1)), f"copy of {original.origin}"))
    return given


def originals(found: int, agents: int, seed: int) -> list[int]:
    """Which of `found` trajectories each agent plays; agents from number `found` on play copies."""
    return [agent if agent < found else stream(seed, "copy", agent).randrange(found) for agent in range(agents)]


def without_pauses(trajectory: Trajectory) -> Trajectory:
    """The same, its turns as soon as the load's tool latency allows."""
    rounds = tuple(msgspec.structs.replace(here, pause=0) for here in trajectory.rounds)
    return Trajectory(rounds, trajectory.origin)


def in_streams(found: Sequence[Trajectory], named: Callable[[int], int]) -> list[Trajectory]:
    """The same with every stream `s` called `named(s)`: what is equal stays equal."""
    names: dict[int, int] = {}

    def renamed(runs: tuple[TokenRun, ...]) -> tuple[TokenRun, ...]:
        for run in runs:
            if run.stream not in names:
                names[run.stream] = named(run.stream)
        return tuple(TokenRun(names[run.stream], run.first, run.count) for run in runs)

    return [
        Trajectory(
            tuple(Round(renamed(here.append), renamed(here.answer), here.kept, here.pause) for here in one.rounds),
            one.origin,
        )
        for one in found
    ]


def _behind(rounds: tuple[Round, ...], tokens: int) -> tuple[Round, ...]:
    """The rounds as they are behind `tokens` tokens that are never cut away."""
    return tuple(here if here.kept < 0 else msgspec.structs.replace(here, kept=here.kept + tokens) for here in rounds)


class Facts(msgspec.Struct, frozen=True):
    """What a trajectory is in numbers: the columns of DualPath's Table 2 for it."""

    turns: int
    append: float
    """Mean of the prompts' new tokens."""
    answer: float
    """Mean of the answers."""
    total: int
    """Tokens at the end: the last prompt and its answer."""
    context: float
    """Mean of what precedes the new tokens."""


def facts(trajectory: Trajectory) -> Facts:
    """The trajectory's own means."""
    replay = Replay(0, trajectory)
    turns = [replay.turn() for _ in trajectory.rounds]
    count = len(turns)
    return Facts(
        turns=count,
        append=sum(turn.append_tokens for turn in turns) / count,
        answer=sum(turn.generate_tokens for turn in turns) / count,
        total=turns[-1].prompt_tokens + turns[-1].generate_tokens,
        context=sum(turn.context_tokens for turn in turns) / count,
    )
