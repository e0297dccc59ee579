from __future__ import annotations

from itertools import product

import pytest

from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent, TokenReceived
from testbed.machine import Completion, Deliver, Emit, Message, UnexpectedMessage
from testbed.serving.requests import Refused, Request, Submit, Tokens
from testbed.workload.client import MOVES, OpenLoopClient, Progress, Step


def request(name: str, scheduled: int = 0) -> Request:
    return Request(name, "why?", max_tokens=4, scheduled=scheduled, prompt_tokens=2)


def chunk(name: str, count: int, reason: str | None = None) -> Tokens:
    return Tokens(name, tuple(range(count)), ("x",) * count, prompt_tokens=2, reason=reason)


MESSAGES: dict[Step, Message] = {
    Step.CHUNK: chunk("a", 1),
    Step.LAST_CHUNK: chunk("a", 1, "length"),
    Step.REFUSAL: Refused("a", "ring_full", "try again"),
}
WAYS: dict[Progress, list[Step]] = {
    Progress.SCHEDULED: [],
    Progress.SENT: [Step.SEND],
    Progress.STREAMING: [Step.SEND, Step.CHUNK],
    Progress.FINISHED: [Step.SEND, Step.LAST_CHUNK],
    Progress.FAILED: [Step.SEND, Step.REFUSAL],
}


def client_in(progress: Progress) -> OpenLoopClient:
    client = OpenLoopClient([request("a")])
    for step in WAYS[progress]:
        if step is Step.SEND:
            client.wake(0)
        else:
            client.receive(0, MESSAGES[step])
    assert client.progress("a") is progress
    return client


@pytest.mark.parametrize(("progress", "step"), list(product(Progress, MESSAGES)))
def test_every_state_takes_the_moves_of_the_table_and_no_other(progress: Progress, step: Step) -> None:
    client = client_in(progress)
    after = MOVES.get((progress, step))
    if after is None:
        with pytest.raises(UnexpectedMessage):
            client.receive(1, MESSAGES[step])
        assert client.progress("a") is progress
    else:
        client.receive(1, MESSAGES[step])
        assert client.progress("a") is after
    assert client.done == (client.progress("a") in (Progress.FINISHED, Progress.FAILED))


def test_requests_go_out_on_schedule_whatever_became_of_the_others() -> None:
    client = OpenLoopClient([request("b", 20), request("a", 10), request("c", 20)])
    assert client.deadline() == 10
    assert client.wake(9) == []
    assert client.wake(10) == [Emit(RequestSent("a", 10, 0, 2, 4)), Deliver("api", Submit(request("a", 10)))]
    assert client.deadline() == 20
    effects = client.wake(23)
    assert [effect.event for effect in effects if isinstance(effect, Emit)] == [
        RequestSent("b", 20, 3, 2, 4),
        RequestSent("c", 20, 3, 2, 4),
    ]
    assert client.deadline() is None
    assert not client.done


def test_tokens_are_counted_from_zero_and_the_end_says_how_many() -> None:
    client = OpenLoopClient([request("a")])
    client.wake(0)
    assert list(client.receive(1, chunk("a", 2))) == [Emit(TokenReceived("a", 0, 2))]
    assert list(client.receive(1, chunk("a", 0))) == []
    assert list(client.receive(2, chunk("a", 1, "stop"))) == [
        Emit(TokenReceived("a", 2, 1)),
        Emit(RequestFinished("a", 3, "stop")),
    ]
    assert client.done


def test_a_refusal_is_a_failed_request() -> None:
    client = OpenLoopClient([request("a")])
    client.wake(0)
    assert list(client.receive(1, Refused("a", "ring_full", "…"))) == [Emit(RequestFailed("a", "ring_full"))]
    assert client.done


@pytest.mark.parametrize("message", [Completion(1), chunk("stranger", 1), Submit(request("a"))])
def test_other_messages_are_not_taken(message: Message) -> None:
    client = OpenLoopClient([request("a")])
    client.wake(0)
    with pytest.raises(UnexpectedMessage):
        client.receive(1, message)
    assert client.progress("a") is Progress.SENT


def test_two_requests_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        OpenLoopClient([request("a"), request("a")])


def test_a_client_without_requests_is_done() -> None:
    client = OpenLoopClient([])
    assert client.done
    assert client.deadline() is None
