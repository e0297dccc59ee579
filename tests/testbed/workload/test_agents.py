"""The agents: every state and move, closed loop, tool latency, failures. Real turns, wired by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent, TokenReceived
from testbed.events.kv_events import AgentFinished, AgentStarted
from testbed.events.log import Record
from testbed.machine import Completion, Deliver, Effect, Emit, Event, Message, UnexpectedMessage
from testbed.metrics.fold import Folding
from testbed.metrics.throughput import ThroughputFold
from testbed.serving.turns import SubmitTurn, TokenRun, Turn, TurnAdvanced, TurnFailed
from testbed.units import MILLISECOND
from testbed.workload.agents import MOVES, Agents, Progress, Step
from testbed.workload.trajectories import Trajectory, of_lengths


def trajectory(turns: int = 2, append: int = 10, answer: int = 3) -> Trajectory:
    return of_lengths(7, [(append, answer)] * turns)


def turns_of(effects: Sequence[Effect]) -> list[Turn]:
    messages = [effect.message for effect in effects if isinstance(effect, Deliver)]
    return [message.turn for message in messages if isinstance(message, SubmitTurn)]


def events_of(effects: Sequence[Effect]) -> list[Event]:
    return [effect.event for effect in effects if isinstance(effect, Emit)]


MESSAGES: dict[Step, Message] = {
    Step.TOKENS: TurnAdvanced("a0000.t001", 1),
    Step.LAST_TURN: TurnAdvanced("a0000.t001", 3, done=True),
    Step.FAILURE: TurnFailed("a0000.t001", "the node died"),
}
WAYS: dict[Progress, list[Step]] = {
    Progress.WAITING: [],
    Progress.ASKING: [Step.SEND],
    Progress.STREAMING: [Step.SEND, Step.TOKENS],
    Progress.FINISHED: [Step.SEND, Step.LAST_TURN],
    Progress.FAILED: [Step.SEND, Step.FAILURE],
}


def agents_in(progress: Progress) -> Agents:
    """One agent before, in or after its second and last turn."""
    agents = Agents([trajectory()], [0], tool_latency=5)
    agents.wake(0)
    agents.receive(1, TurnAdvanced("a0000.t000", 3, done=True))
    for step in WAYS[progress]:
        if step is Step.SEND:
            agents.wake(6)
        else:
            agents.receive(7, MESSAGES[step])
    assert agents.progress(0) is progress
    return agents


@pytest.mark.parametrize(("progress", "step"), list(product(Progress, MESSAGES)))
def test_every_state_takes_the_moves_of_the_table_and_no_other(progress: Progress, step: Step) -> None:
    agents = agents_in(progress)
    before = (agents.ended, agents.remaining, agents.deadline())
    # The last tokens may come with or after others: three are due in all.
    message = MESSAGES[step]
    if step is Step.LAST_TURN and progress is Progress.STREAMING:
        message = TurnAdvanced("a0000.t001", 2, done=True)
    after = MOVES.get((progress, step))
    if after is None:
        with pytest.raises(UnexpectedMessage):
            agents.receive(8, message)
        assert (agents.progress(0), agents.ended, agents.remaining, agents.deadline()) == (progress, *before)
    else:
        agents.receive(8, message)
        assert agents.progress(0) is after
    assert agents.done == (agents.progress(0) in (Progress.FINISHED, Progress.FAILED))


def test_a_turn_goes_out_with_the_context_of_all_before_it() -> None:
    agents = Agents([trajectory(turns=3)], [40])
    assert agents.deadline() == 40
    assert agents.wake(39) == []
    effects = agents.wake(42)
    assert events_of(effects) == [
        AgentStarted("a0000", turns=3, scheduled=40),
        RequestSent("a0000.t000", scheduled=40, lag=2, prompt_tokens=10, max_tokens=3),
    ]
    (first,) = turns_of(effects)
    assert (first.context_tokens, first.append_tokens, first.generate_tokens) == (0, 10, 3)
    assert agents.deadline() is None

    assert events_of(agents.receive(50, TurnAdvanced("a0000.t000", 1))) == [TokenReceived("a0000.t000", 0, 1)]
    effects = agents.receive(60, TurnAdvanced("a0000.t000", 2, done=True))
    assert events_of(effects) == [
        TokenReceived("a0000.t000", 1, 2),
        RequestFinished("a0000.t000", tokens=3, reason="length"),
        RequestSent("a0000.t001", scheduled=60, lag=0, prompt_tokens=23, max_tokens=3),
    ]
    (second,) = turns_of(effects)
    assert (second.context_tokens, second.append_tokens) == (13, 10)
    assert second.prompt == (TokenRun(7, 0, 23),), "equal tokens are equal runs"


def test_the_last_answer_ends_the_agent_and_says_how_long_its_job_took() -> None:
    agents = Agents([trajectory(turns=1), trajectory(turns=1)], [10, 20])
    assert agents.requests == agents.remaining == 2
    agents.wake(30)
    effects = agents.receive(100, TurnAdvanced("a0001.t000", 3, done=True))
    assert events_of(effects)[-1] == AgentFinished("a0001", outcome="finished", turns=1, duration=80)
    assert (agents.ended, agents.remaining, agents.done) == (1, 1, False)
    agents.receive(101, TurnAdvanced("a0000.t000", 3, done=True))
    assert agents.done


@pytest.mark.parametrize("latency", [0, 1_000])
def test_the_next_turn_waits_for_the_tool_and_for_the_pause_of_its_own(latency: int) -> None:
    made = trajectory(turns=2)
    paused = Trajectory((made.rounds[0], msgspec.structs.replace(made.rounds[1], pause=70)))
    agents = Agents([paused], [0], tool_latency=latency)
    agents.wake(0)
    assert turns_of(agents.receive(500, TurnAdvanced("a0000.t000", 3, done=True))) == []
    assert agents.deadline() == 500 + latency + 70
    (turn,) = turns_of(agents.wake(570 + latency))
    assert turn.name == "a0000.t001"


def test_a_failed_turn_ends_its_agent_and_no_other() -> None:
    agents = Agents([trajectory(turns=5), trajectory(turns=5)], [0, 0])
    agents.wake(0)
    agents.receive(5, TurnAdvanced("a0000.t000", 3, done=True))
    effects = agents.receive(9, TurnFailed("a0000.t001", "de0 is gone"))
    assert events_of(effects) == [
        RequestFailed("a0000.t001", error="de0 is gone"),
        AgentFinished("a0000", outcome="failed", turns=1, duration=9),
    ]
    assert (agents.ended, agents.remaining) == (5, 5), "turns that will not be sent are no longer waited for"
    assert agents.progress(1) is Progress.ASKING


@pytest.mark.parametrize(
    "message",
    [
        TurnAdvanced("a0000.t000", 4),
        TurnAdvanced("a0000.t000", 2, done=True),
        TurnAdvanced("a0000.t000", -1),
        TurnAdvanced("a0009.t000", 1),
        TurnFailed("a0000.t001", "not asked yet"),
        Completion(1),
    ],
)
def test_an_answer_that_is_not_the_turns_changes_nothing(message: Message) -> None:
    agents = Agents([trajectory()], [0])
    agents.wake(0)
    with pytest.raises(UnexpectedMessage):
        agents.receive(1, message)
    assert (agents.progress(0), agents.remaining) == (Progress.ASKING, 2)
    agents.receive(2, TurnAdvanced("a0000.t000", 3, done=True))
    assert agents.ended == 1


@given(
    lengths=st.lists(
        st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), min_size=1, max_size=5), min_size=1, max_size=6
    ),
    latency=st.integers(0, 20),
    service=st.integers(1, 30),
)
def test_every_turn_is_sent_once_in_order_and_ends(
    lengths: list[list[tuple[int, int]]], latency: int, service: int
) -> None:
    """A server that answers each turn whole after `service`; closed loop, so an agent has one turn open at most."""
    agents = Agents([of_lengths(n, own) for n, own in enumerate(lengths)], [0] * len(lengths), tool_latency=latency)
    waiting: list[tuple[int, Turn]] = []
    sent: list[str] = []
    log: list[Event] = []
    now = 0
    while not agents.done:
        due = [moment for moment in (agents.deadline(), *(at for at, _ in waiting)) if moment is not None]
        now = max(now, min(due))
        effects = list(agents.wake(now))
        for entry in [entry for entry in waiting if entry[0] <= now]:
            waiting.remove(entry)
            effects += agents.receive(now, TurnAdvanced(entry[1].name, entry[1].generate_tokens, done=True))
        log += events_of(effects)
        for turn in turns_of(effects):
            assert turn.agent not in {other.agent for _, other in waiting}
            waiting.append((now + service, turn))
            sent.append(turn.name)
    assert sorted(sent) == [f"a{n:04d}.t{t:03d}" for n, own in enumerate(lengths) for t in range(len(own))]
    assert sum(isinstance(event, RequestFinished) for event in log) == sum(map(len, lengths))
    ends = [event for event in log if isinstance(event, AgentFinished)]
    for event in ends:
        own = lengths[int(event.agent[1:])]
        assert event.duration == len(own) * service + (len(own) - 1) * latency


def test_the_page_shows_every_move_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "models" / "trajectories.md").read_text()
    rows = [line.strip("| ").split("|") for line in page.splitlines() if line.startswith("| ")]
    start = next(place for place, row in enumerate(rows) if row[0].strip() == "State")
    steps = [Step(word.strip()) for word in rows[start][1:]]
    shown = {}
    for row in rows[start + 1 : start + 5]:
        for state in row[0].split(","):
            for step, after in zip(steps, row[1:], strict=True):
                if after.strip() != "–":
                    shown[Progress(state.strip()), step] = Progress(after.strip())
    assert shown == MOVES


def test_known_fault_16_turns_that_follow_at_once_make_no_rate_of_thousands() -> None:
    """Closed loop without tool latency sends a turn in the very instant of an answer; rates are over fixed windows."""
    agents = Agents([trajectory(turns=250)], [0])
    records = [Record(0, "client0", 0, event) for event in events_of(agents.wake(0))]
    for number in range(250):
        now = (number + 1) * 20 * MILLISECOND
        answer = TurnAdvanced(f"a0000.t{number:03d}", 3, done=True)
        records += [Record(now, "client0", 0, event) for event in events_of(agents.receive(now, answer))]
    found = Folding({"t": ThroughputFold()}).take_all(records).result("t")
    assert (found.sent_per_s.mean, found.sent_per_s.spread) == (50, 0)
