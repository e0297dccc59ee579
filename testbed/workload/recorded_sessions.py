"""Recorded sessions as trajectories: which tokens are the same, told by hash ids, and how lengths are made to fit.

A recording has lengths and, at best, an id for each block of its prompts; never tokens. Here a block's id becomes a
run of tokens the first time it is seen and the same run ever after, so equal ids are equal tokens, in one session or
in all of a file. Three things are easily got wrong (design serving 2.2, 2.5):

- only ids of *full* blocks say anything: the tokens of a last block in part are taken as new ones;
- an id is a whole number of any size, never cut to 32 bits (known fault 22);
- `input` says whether a recorded length is the whole prompt or what the turn adds (known fault 23): the recordings
  do not say it, and reading one as the other makes loads that are several times too small or too large.

Where a prompt begins with all of the prompt before and is longer than prompt and answer together, it is taken to hold
the answer too, as DualPath A.3 replays (recordings give the answer's blocks new ids). Otherwise it keeps the blocks
that the ids share. This file reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from testbed.serving.turns import TokenRun, cut, joined, length
from testbed.units import Nanoseconds
from testbed.workload.trajectories import Replay, Round, Trajectory

Input: TypeAlias = Literal["cumulative", "delta"]


class RecordedRequest(NamedTuple):
    """One request as it was recorded."""

    place: str
    """Where it stands, for complaints: line and field."""
    input: int
    """Tokens of the whole prompt, or of what is new in it."""
    output: int
    ids: tuple[int, ...] = ()
    """Of the blocks of these tokens, the last one perhaps in part; empty where none were recorded."""
    pause: Nanoseconds = 0
    """Since the answer before."""


class RecordedSession(NamedTuple):
    """The requests of one conversation, in order."""

    origin: str
    requests: tuple[RecordedRequest, ...]


class TraceError(Exception):
    """A trace that cannot be read: file, place in it (line, field) and why."""

    def __init__(self, source: str, place: str, reason: str) -> None:
        self.source = source
        self.place = place
        self.reason = reason
        super().__init__(": ".join(part for part in (source, place, reason) if part))


class TokenSpace:
    """The tokens of one scope of hash ids: a stream, how much of it is used, and the run of each id."""

    def __init__(self, stream: int, block: int) -> None:
        self.block = block
        self._stream = stream
        self._used = 0
        self.known: dict[int, tuple[TokenRun, ...]] = {}

    def fresh(self, count: int) -> TokenRun:
        """Tokens that nobody has had."""
        self._used += count
        return TokenRun(self._stream, self._used - count, count)

    def of(self, block_id: int) -> tuple[TokenRun, ...]:
        """The tokens of a full block."""
        runs = self.known.get(block_id)
        if runs is None:
            runs = self.known[block_id] = (self.fresh(self.block),)
        return runs


def trajectory_of(session: RecordedSession, space: TokenSpace, told: Input, source: str) -> Trajectory:
    """The session's trajectory. Raises `TraceError` for lengths and ids that do not fit."""
    if told == "delta":
        _refuse_whole_prompts(session, source)
    rounds = []
    context: tuple[TokenRun, ...] = ()
    before: tuple[int, ...] = ()
    for request in session.requests:
        full = _full_ids(request, space.block, source)
        if told == "delta":
            kept, append = length(context), _blocks(request.input, 0, full, space)
        else:
            kept = _kept(request, full, before, length(context), space, source)
            append = _blocks(request.input, kept, full, space)
        answer = (space.fresh(max(1, request.output)),)
        prompt = joined((*cut(context, 0, kept), *append))
        if told == "cumulative":
            _remember(prompt, full, space)
        rounds.append(Round(append, answer, -1 if kept == length(context) else kept, request.pause))
        context, before = joined((*prompt, *answer)), full
    return Trajectory(tuple(rounds), session.origin)


def _refuse_whole_prompts(session: RecordedSession, source: str) -> None:
    """Raises `TraceError` if each of three or more prompts is longer than the one before and begins with its blocks: so
    whole prompts look, and nothing that turns add.
    """
    pairs = list(pairwise(session.requests))
    if len(pairs) < 2 or not all(before.ids for before, _ in pairs):
        return
    # The last block before may have been there in part.
    if all(
        after.input > before.input and after.ids[: len(before.ids) - 1] == before.ids[:-1] for before, after in pairs
    ):
        reason = 'every prompt begins with the hash ids of the one before; is this input = "cumulative"?'
        raise TraceError(source, session.requests[1].place, reason)


def _full_ids(request: RecordedRequest, block: int, source: str) -> tuple[int, ...]:
    """Ids of the full blocks. Raises `TraceError` unless there is an id for each block, or for each full one."""
    if request.input < 1:
        raise TraceError(source, request.place, f"a prompt of {request.input} tokens, at least 1 is needed")
    full = request.input // block
    if request.ids and len(request.ids) not in (full, -(-request.input // block)):
        reason = f"{len(request.ids)} hash ids for {request.input} tokens, in blocks of {block}"
        raise TraceError(source, request.place, reason)
    return request.ids[:full]


def _kept(
    request: RecordedRequest, full: Sequence[int], before: Sequence[int], context: int, space: TokenSpace, source: str
) -> int:
    """Leading tokens of the context that a whole prompt begins with."""
    if not request.ids and context:
        if request.input <= context:
            reason = (
                f"a whole prompt of {request.input} tokens after a context of {context}, and no hash ids "
                'to tell what it keeps; is this input = "delta"?'
            )
            raise TraceError(source, request.place, reason)
        return context
    common = next(
        (place for place, (one, other) in enumerate(zip(full, before, strict=False)) if one != other),
        min(len(full), len(before)),
    )
    # An id that is known already has other tokens than the answer, which is new.
    recalled = any(block_id in space.known for block_id in full[common : -(-context // space.block)])
    if common == len(before) and request.input > context and not recalled:
        return context
    return min(common * space.block, request.input - 1)


def _blocks(total: int, kept: int, full: Sequence[int], space: TokenSpace) -> tuple[TokenRun, ...]:
    """Tokens `kept` to `total - 1` of a prompt: up to a block's beginning, whole blocks, a new tail."""
    block = space.block
    place, first = kept // block, min(-(-kept // block) * block, total)
    runs: list[TokenRun] = []
    if first > kept:
        known = space.known.get(full[place]) if place < len(full) else None
        runs += [space.fresh(first - kept)] if known is None else cut(known, kept - place * block, first - kept)
    for block_id in full[first // block :]:
        runs += space.of(block_id)
    end = max(first, len(full) * block)
    if total > end:
        runs.append(space.fresh(total - end))
    return joined(runs)


def _remember(prompt: Sequence[TokenRun], full: Sequence[int], space: TokenSpace) -> None:
    """Ids of blocks that hold an answer, or that a kept context ends in, are known from now on."""
    for place, block_id in enumerate(full):
        if block_id not in space.known:
            space.known[block_id] = cut(prompt, place * space.block, space.block)


# --- lengths that fit ---------------------------------------------------------------------------------------------


def cut_to(found: Iterable[Trajectory], max_tokens: int) -> list[Trajectory]:
    """Each trajectory up to the last turn with which it is no longer than `max_tokens`; those without one are left
    out.
    """
    fitting = []
    for trajectory in found:
        replay = Replay(0, trajectory)
        count = 0
        while replay.left:
            turn = replay.turn()
            if turn.prompt_tokens + turn.generate_tokens > max_tokens:
                break
            count += 1
        if count:
            fitting.append(Trajectory(trajectory.rounds[:count], trajectory.origin))
    return fitting


def shrink_to(found: Sequence[Trajectory], max_tokens: int) -> list[Trajectory]:
    """All lengths of all trajectories in one proportion, so that the longest has `max_tokens` about; shorter ones stay
    as they are. Equal prefixes stay equal.
    """
    longest = max((_longest(trajectory) for trajectory in found), default=0)
    if longest <= max_tokens:
        return list(found)
    return [_shrunk(trajectory, max_tokens, longest, number) for number, trajectory in enumerate(found)]


def _longest(trajectory: Trajectory) -> int:
    replay = Replay(0, trajectory)
    turns = [replay.turn() for _ in trajectory.rounds]
    return max(turn.prompt_tokens + turn.generate_tokens for turn in turns)


def _shrunk(trajectory: Trajectory, part: int, whole: int, number: int) -> Trajectory:
    # Token x of a stream becomes token x * part // whole, so neighbours stay neighbours and equals stay equals.
    # What would be left without a token gets one of a stream of its own.
    own = -1 - number
    rounds: list[Round] = []
    context: tuple[TokenRun, ...] = ()
    replay = Replay(0, trajectory)
    for place, here in enumerate(trajectory.rounds):
        turn = replay.turn()
        base, kept = context, -1
        if here.kept >= 0:
            kept = min(length(_scaled(cut(turn.prompt, 0, turn.context_tokens), part, whole)), length(context))
            base = cut(context, 0, kept)
        append = _scaled(here.append, part, whole) or (TokenRun(own, 2 * place, 1),)
        answer = _scaled(here.answer, part, whole) or (TokenRun(own, 2 * place + 1, 1),)
        rounds.append(Round(append, answer, kept, here.pause))
        context = joined((*base, *append, *answer))
    return Trajectory(tuple(rounds), trajectory.origin)


def _scaled(runs: Iterable[TokenRun], part: int, whole: int) -> tuple[TokenRun, ...]:
    scaled = []
    for run in runs:
        first, end = run.first * part // whole, (run.first + run.count) * part // whole
        scaled.append(TokenRun(run.stream, first, end - first))
    return joined(scaled)
