from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clocks.front_network import FrontNetwork, wire_size
from testbed.machine import Completion, MachineError
from testbed.serving.requests import Abandon, Refused, Request, Submit, Tokens
from testbed.serving.turn_frames import frame
from testbed.serving.turns import SubmitTurn, TokenRun, Turn, TurnAdvanced, TurnFailed
from testbed.units import serialization_time

RATE = 1_000_000_000
SUBMIT = Submit(Request("r", "why?", 4))


def network(delay: int = 1000) -> FrontNetwork:
    return FrontNetwork(
        ("dpu0", "front_end"),
        {"client0": "client", "client1": "client"},
        rates_bits_per_s={"dpu0": RATE, "client0": RATE, "client1": RATE},
        delay=delay,
    )


def test_a_message_takes_both_ports_and_the_delay() -> None:
    front = network()
    front.send(50, "client0", SUBMIT)
    arrival = 50 + 2 * serialization_time(wire_size(SUBMIT), RATE) + 1000
    assert front.deadline() == arrival
    assert front.wake(arrival - 1) == []
    assert front.wake(arrival) == [("dpu0", "front_end", SUBMIT)]
    assert front.deadline() is None


def test_an_answer_goes_to_who_asked() -> None:
    front = network()
    front.send(0, "client1", SUBMIT)
    front.wake(10**6)
    answer = Tokens("r", (1,), ("x",), 2)
    front.send(10**6, "dpu0", answer)
    front.send(10**6, "dpu0", Refused("r", "cancelled", ""))
    assert front.wake(10**9) == [("client1", "client", answer), ("client1", "client", Refused("r", "cancelled", ""))]


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), min_size=1, max_size=20))
def test_the_messages_of_a_client_stay_in_order_and_never_overtake(told: list[tuple[int, int]]) -> None:
    front = network(0)
    now = 0
    for number, (gap, size) in enumerate(told):
        now += gap
        front.send(now, "client0", Submit(Request(f"r{number}", "x" * size, 1)))
    arrived, last = [], 0
    while (moment := front.deadline()) is not None:
        assert moment >= last
        last = moment
        arrived += [message.request.name for _, _, message in front.wake(moment) if isinstance(message, Submit)]
    assert arrived == [f"r{number}" for number in range(len(told))]


def test_a_busy_server_port_is_shared_in_turn() -> None:
    front = network(0)
    front.send(0, "client0", SUBMIT)
    front.send(0, "client1", Submit(Request("s", "why?", 4)))
    one = serialization_time(wire_size(SUBMIT), RATE)
    assert front.deadline() == 2 * one
    front.wake(2 * one)
    assert front.deadline() == 3 * one


def test_sizes_grow_with_the_text_and_count_segments() -> None:
    short, long = (wire_size(Submit(Request("r", "x" * size, 1))) for size in (0, 1448))
    assert long - short == 1448 + 66
    assert wire_size(Tokens("r", (1, 2), ("é", ""), 1)) == 2 * 250 + 2 + 66
    assert wire_size(Abandon("r")) == 66
    with pytest.raises(MachineError, match="Completion does not travel"):
        wire_size(Completion(1))


@pytest.mark.parametrize(
    ("node", "message"),
    [("gpu0", SUBMIT), ("dpu0", SUBMIT), ("dpu0", Tokens("unasked", (1,), ("x",), 1))],
)
def test_what_belongs_nowhere_is_our_fault_and_raises(node: str, message: Submit | Tokens) -> None:
    with pytest.raises(MachineError):
        network().send(0, node, message)


def turn(name: str) -> SubmitTurn:
    return SubmitTurn(Turn(name, 0, 0, (TokenRun(1, 0, 500),), 0, (TokenRun(1, 500, 9),)))


def test_turns_travel_as_frames_and_their_answers_go_to_the_agents_that_asked() -> None:
    front = FrontNetwork(
        ("sched0", "api"),
        {"client0": "agents", "client1": "agents"},
        rates_bits_per_s={"sched0": RATE, "client0": RATE, "client1": RATE},
        delay=1000,
    )
    front.send(0, "client1", turn("a0000.t000"))
    # An empty TCP segment's headers, and the very bytes of the frame.
    assert wire_size(turn("a0000.t000")) == len(frame(turn("a0000.t000"))) + 66
    arrival = 2 * serialization_time(wire_size(turn("a0000.t000")), RATE) + 1000
    assert front.wake(arrival) == [("sched0", "api", turn("a0000.t000"))]
    told = [TurnAdvanced("a0000.t000", 4), TurnAdvanced("a0000.t000", 5, done=True)]
    for message in told:
        front.send(arrival, "sched0", message)
    assert front.wake(10**9) == [("client1", "agents", message) for message in told]


@pytest.mark.parametrize("last", [TurnAdvanced("a0000.t000", 1, done=True), TurnFailed("a0000.t000", "lost")])
def test_a_turn_that_is_over_has_nobody_to_answer_to(last: TurnAdvanced | TurnFailed) -> None:
    front = FrontNetwork(
        ("sched0", "api"), {"client0": "agents"}, rates_bits_per_s={"sched0": RATE, "client0": RATE}, delay=0
    )
    front.send(0, "client0", turn("a0000.t000"))
    front.send(1, "sched0", last)
    with pytest.raises(MachineError, match="no client has asked"):
        front.send(2, "sched0", TurnAdvanced("a0000.t000", 1))
