"""What every server of text promises its clients, as one suite: whoever drives the engine, and wherever.

A system joins by a test class that inherits `ServingContract` and has a fixture `candidate` (`serving_world`). All run
the same engine, policy, KV pool and sampler, so the texts are the same to the letter as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.events.schema import (
    BatchChanged,
    DeviceFaulted,
    GraphSelected,
    RequestTokenised,
    TokensDetokenised,
    TokensPublished,
    TokensSampled,
    TokensStreamed,
)
from testbed.machine import Message
from testbed.serving.cost_model import StepTime
from testbed.serving.engine import Lane
from testbed.serving.executor import Ended
from testbed.serving.graph_cache import Graph
from testbed.serving.requests import Abandon, Finish, Refused, Request, Sampling, Submit, Tokens
from testbed.units import MICROSECOND, MILLISECOND
from tests.conformance.serving_world import (
    CAPACITY,
    ENGINE,
    Candidate,
    Departure,
    ServingWorld,
    ask,
    leave,
    satisfied,
)


def served(candidate: Candidate, visits: Sequence[tuple[int, Message]], **more: Any) -> ServingWorld:
    """The world after all of `visits` have ended, with nothing left in it."""
    world = ServingWorld(candidate, visits, **more).run()
    assert all(value == 0 for value in world.left().values()), world.left()
    return world


def many(count: int, every: int = MILLISECOND, **changes: Any) -> list[tuple[int, Message]]:
    """Requests of different prompts, lengths and seeds."""
    return [
        (
            1 + number * every,
            ask(f"r{number}", f"Request number {number} asks " * (1 + number % 5), 3 + number % 7, number, **changes),
        )
        for number in range(count)
    ]


class FailingDevice:
    """An executor that loses the device at its `at`-th graph (from 1); those before it take 5 ms."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._begun = 0
        self._lost: list[Ended] = []

    def begin(self, launch: int, graph: Graph, lanes: Sequence[Lane]) -> StepTime | None:
        self._begun += 1
        if self._begun < self._at:
            return StepTime(5 * MILLISECOND, extrapolated=False)
        self._lost.append(Ended(launch, 0, "gone"))
        return None

    def waiting(self) -> bool:
        return bool(self._lost)

    def ended(self) -> Sequence[Ended]:
        lost, self._lost = self._lost, []
        return lost

    def cancel(self) -> None:
        self._lost.clear()


class ServingContract:
    """The promises."""

    def test_an_answer_has_as_many_tokens_as_were_asked_for_and_says_so_at_its_end(self, candidate: Candidate) -> None:
        world = served(candidate, [(1, ask("r", max_tokens=9))])
        messages = [message for message in world.messages("r") if isinstance(message, Tokens)]
        assert len(world.tokens("r")) == 9
        assert world.reason("r") == "length"
        assert {message.prompt_tokens for message in messages} == {world.of(RequestTokenised)[0].tokens}
        assert all(len(message.tokens) == len(message.texts) for message in messages)

    def test_the_least_answer_is_one_token(self, candidate: Candidate) -> None:
        world = served(candidate, [(1, ask("r", max_tokens=1)), (1, ask("s", max_tokens=1, seed=3))])
        assert [len(world.tokens(name)) for name in "rs"] == [1, 1]
        assert world.reason("r") == world.reason("s") == "length"

    def test_an_end_of_sequence_ends_an_answer_unless_it_is_to_be_ignored(self, candidate: Candidate) -> None:
        prompt = "Alice was beginning to get very tired"
        visits = [(1 + n, ask(f"r{n}", prompt, 60, n, ignore_eos=False)) for n in range(CAPACITY)]
        world = served(candidate, visits)
        stopped = [f"r{n}" for n in range(CAPACITY) if world.reason(f"r{n}") == "stop"]
        assert 0 < len(stopped) < CAPACITY, "the seeds are to give both endings"
        assert all(0 < len(world.tokens(name)) <= 60 for name in stopped)
        ignoring = served(candidate, [(1, ask("r", prompt, 60, int(stopped[0][1:]), ignore_eos=True))])
        assert ignoring.reason("r") == "length"

    def test_every_step_of_a_request_is_in_the_log_in_its_order(self, candidate: Candidate) -> None:
        world = served(candidate, many(6))
        for number, epitaph in world.served().items():
            tokens = [event for event in world.of(TokensStreamed) if event.request == number]
            assert tokens[0].first == 0
            assert sum(event.count for event in tokens) == epitaph.tokens
            moments = [_first(world, kind, number) for kind in _STEPS]
            assert moments == sorted(moments)

    def test_texts_do_not_depend_on_company_or_on_who_serves(self, candidate: Candidate, blink: Candidate) -> None:
        visits = [(1 + n, ask(f"r{n}", "Curiouser and curiouser " * (1 + n % 3), 12, n, temperature=0.8, top_p=0.9,
                              ignore_eos=False)) for n in range(8)]  # fmt: skip
        world, other = served(candidate, visits), served(blink, visits)
        for number in range(8):
            alone = served(candidate, [visits[number]])
            name = f"r{number}"
            assert world.tokens(name) == alone.tokens(name) == other.tokens(name)
            assert world.text(name) == alone.text(name) == other.text(name)
            assert world.reason(name) == other.reason(name)

    def test_the_same_twice_is_the_same_run(self, candidate: Candidate) -> None:
        one, two = served(candidate, many(CAPACITY)), served(candidate, many(CAPACITY))
        assert one.events == two.events
        assert one.desk.answers == two.desk.answers

    def test_first_tokens_come_in_order_of_arrival(self, candidate: Candidate) -> None:
        world = served(candidate, many(CAPACITY, every=2 * MILLISECOND))
        moments = [world.first_token(f"r{n}") for n in range(CAPACITY)]
        assert moments == sorted(moments)

    def test_batch_and_kv_pool_are_never_exceeded_and_both_come_back(self, candidate: Candidate) -> None:
        world = served(candidate, many(CAPACITY, every=1))
        told = world.of(BatchChanged)
        assert max(event.running + event.paused for event in told) == ENGINE["max_batch"]
        assert all(0 <= event.kv_blocks_free <= event.kv_blocks_total == ENGINE["kv_blocks"] for event in told)
        assert max(len(event.requests) for event in world.of(GraphSelected)) <= ENGINE["max_batch"]

    def test_a_running_batch_is_paused_for_a_few_prefills_and_goes_on(self, candidate: Candidate) -> None:
        visits = [(1, ask("long", max_tokens=60)), *many(CAPACITY - 1, every=20 * MILLISECOND)]
        world = served(candidate, visits)
        row = 0
        for event in world.of(GraphSelected):
            row = row + 1 if event.kind == "prefill" else 0
            assert row <= ENGINE["prefills_per_pause"]
        assert any(event.paused for event in world.of(BatchChanged))

    def test_who_does_not_fit_into_the_kv_pool_waits_for_its_blocks(self, candidate: Candidate) -> None:
        # Each needs 5 of 12 blocks: two run at a time, whatever places the batch has.
        visits = [(1 + n, ask(f"r{n}", "word " * 20, 56, n)) for n in range(6)]
        world = served(candidate, visits, kv_blocks=12)
        assert [world.reason(f"r{n}") for n in range(6)] == ["length"] * 6
        assert max(len(event.requests) for event in world.of(GraphSelected)) == 2
        assert min(event.kv_blocks_free for event in world.of(BatchChanged)) == 2

    def test_a_request_that_the_pool_could_never_hold_is_refused_and_nobody_waits_behind_it(
        self, candidate: Candidate
    ) -> None:
        visits = [(1, ask("huge", max_tokens=400)), (2, ask("small"))]
        world = served(candidate, visits, kv_blocks=8)
        assert world.reason("huge") == "context_length_exceeded"
        assert world.reason("small") == "length"

    def test_what_cannot_be_served_is_refused_with_its_reason(self, candidate: Candidate) -> None:
        ids = Submit(Request("ids", "", 4, Sampling(), prompt_ids=(1, 2, 10**6)))
        visits = [
            (1, ask("none", max_tokens=0)), (2, ask("hot", temperature=float("nan"))), (3, ask("p", top_p=0.0)),
            (4, ask("empty", "")), (5, ids), (6, ask("long", "word " * 5000)), (7, ask("edge", max_tokens=512)),
        ]  # fmt: skip
        world = served(candidate, visits)
        reasons = {name: world.reason(name) for name in ("none", "hot", "p", "empty", "ids", "long", "edge")}
        assert reasons == {
            **dict.fromkeys(("none", "hot", "p", "empty", "ids"), "invalid_request"),
            **dict.fromkeys(("long", "edge"), "context_length_exceeded"),
        }
        assert not world.of(GraphSelected)

    def test_prompts_of_token_ids_are_taken_as_they_are(self, candidate: Candidate) -> None:
        world = served(candidate, [(1, Submit(Request("ids", "", 4, Sampling(), prompt_ids=(100, 200, 300))))])
        assert world.of(RequestTokenised)[0].tokens == 3
        assert len(world.tokens("ids")) == 4

    def test_a_name_that_is_being_served_is_not_taken_twice_but_may_come_again(self, candidate: Candidate) -> None:
        visits = [(1, ask("r")), (2, ask("r")), (1_000 * MILLISECOND, ask("r"))]
        world = ServingWorld(candidate, visits).run()
        answers = world.messages("r")
        refused = [message for message in answers if isinstance(message, Refused)]
        assert [message.reason for message in refused] == ["invalid_request"]
        assert len(world.served()) == 2
        assert not any(world.left().values())

    def test_beyond_its_capacity_requests_are_refused_at_once_and_taken_again_later(self, candidate: Candidate) -> None:
        visits = [(1 + n * 50 * MICROSECOND, ask(f"r{n}", max_tokens=30, seed=n)) for n in range(CAPACITY + 5)]
        world = served(candidate, [*visits, (3_000 * MILLISECOND, ask("later"))])
        reasons = [world.reason(f"r{n}") for n in range(CAPACITY + 5)]
        assert reasons == ["length"] * CAPACITY + ["ring_full"] * 5
        assert world.reason("later") == "length"

    def test_a_client_that_leaves_gets_no_more_and_its_place_and_blocks_are_free(self, candidate: Candidate) -> None:
        visits = [(1 + n, ask(f"r{n}", max_tokens=100, seed=n)) for n in range(4)]
        world = served(candidate, visits, departures={"r1": leave("r1", 1), "r2": leave("r2", 30)})
        assert world.reason("r1") == world.reason("r2") == ""
        assert 1 <= len(world.tokens("r1")) < 10
        assert 30 <= len(world.tokens("r2")) < 40
        assert sorted(world.abandoned()) == sorted((world.number("r1"), world.number("r2")))
        assert len(world.tokens("r0")) == len(world.tokens("r3")) == 100
        # A step or two after it left, its blocks are in the pool again: long before anybody else has ended.
        blocks = {event.kv_blocks_free for event in world.of(BatchChanged)}
        each = ENGINE["kv_blocks"] - max(blocks - {ENGINE["kv_blocks"]})
        assert ENGINE["kv_blocks"] - 3 * each in blocks

    def test_clients_may_leave_at_any_moment_before_their_first_token(self, candidate: Candidate) -> None:
        visits: list[tuple[int, Message]] = [(1, ask("stays", max_tokens=40))]
        for number in range(10):
            visits += [
                (2 + number, ask(f"r{number}", "word " * 40, 20, number)),
                (2 + number + number**4 * 4 * MICROSECOND, Abandon(f"r{number}")),
            ]
        world = served(candidate, visits)
        assert world.reason("stays") == "length"
        assert all(world.reason(f"r{number}") == "" for number in range(10))
        assert len(world.abandoned()) == 10

    def test_a_client_with_its_whole_answer_is_served_and_gets_no_more(self, candidate: Candidate) -> None:
        world = served(candidate, [(1, ask("r", max_tokens=200))], departures={"r": satisfied("r", 5)})
        assert 5 <= len(world.tokens("r")) < 20
        (epitaph,) = world.served().values()
        assert epitaph.reason == "stop"

    def test_departures_of_nobody_and_of_the_served_are_ignored(self, candidate: Candidate) -> None:
        visits = [(1, Abandon("nobody")), (2, Finish("nobody")), (3, ask("r")), (1_000 * MILLISECOND, Abandon("r"))]
        world = served(candidate, [*visits, (1_001 * MILLISECOND, ask("s"))])
        assert world.reason("r") == world.reason("s") == "length"

    def test_a_device_that_fails_ends_every_request_cleanly_and_all_that_come_later(self, candidate: Candidate) -> None:
        visits = [*many(6), (1_000 * MILLISECOND, ask("later"))]
        world = ServingWorld(candidate, visits, executor=FailingDevice(at=8)).run()
        reasons = {world.reason(f"r{n}") for n in range(6)}
        assert "unavailable" in reasons
        assert reasons <= {"length", "unavailable"}
        assert world.reason("later") == "unavailable"
        assert world.of(DeviceFaulted)
        assert not any(world.left().values())

    # The candidate says which system it is and keeps nothing.
    @settings(
        max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
    )
    @given(data=st.data())
    def test_whoever_comes_and_goes_every_request_ends_once_and_nothing_is_left(
        self, candidate: Candidate, data: st.DataObject
    ) -> None:
        count = data.draw(st.integers(1, CAPACITY + 3))
        visits: list[tuple[int, Message]] = []
        departures: dict[str, Departure] = {}
        for number in range(count):
            name, t = f"r{number}", data.draw(st.integers(0, 200)) * MILLISECOND + 1
            tokens = data.draw(st.integers(1, 30))
            visits.append((t, ask(name, "a b " * data.draw(st.integers(1, 30)), tokens, number, ignore_eos=False)))
            match data.draw(st.sampled_from(("stay", "leave", "finish", "before"))):
                case "leave":
                    departures[name] = leave(name, data.draw(st.integers(1, 30)))
                case "finish":
                    departures[name] = satisfied(name, data.draw(st.integers(1, 30)))
                case "before":
                    visits.append((t + data.draw(st.integers(0, 60_000)) * MICROSECOND, Abandon(name)))
        world = served(candidate, visits, departures=departures)
        assert len(world.endings) == count
        for number in range(count):
            world.reason(f"r{number}")
        assert all(event.kv_blocks_free >= 0 for event in world.of(BatchChanged))


_STEPS = (RequestTokenised, GraphSelected, TokensSampled, TokensPublished, TokensDetokenised, TokensStreamed)


def _first(world: ServingWorld, kind: type[Any], number: int) -> int:
    return next(
        t
        for t, event in world.events
        if isinstance(event, kind)
        and number in (event.requests if hasattr(event, "requests") else (event.request,))
    )
