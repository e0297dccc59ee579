"""Each machine of a host-driven server by itself: what it refuses, gives up, and says when its peer fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from testbed.baselines.host_driven_api import SLICE, ApiServer, as_on_device
from testbed.baselines.host_driven_core import EngineCore
from testbed.baselines.host_driven_device import LaunchedDevice
from testbed.baselines.host_driven_parameters import HostCosts, HostDrivenParameters, host_costs
from testbed.baselines.host_driven_states import CoreState, WorkerState
from testbed.baselines.host_driven_worker import Worker
from testbed.baselines.host_messages import (
    AddRequest,
    HostMessage,
    RequestsFailed,
    RunStep,
    StepLost,
    StepOutput,
    StepTaken,
    WithdrawRequest,
    decode,
    encode,
)
from testbed.events.schema import DeviceFaulted, RequestAbandoned, TokensSampled
from testbed.machine import Compute, Deliver, Effect, Emit, Machine, Message, UnexpectedMessage
from testbed.serving.cost_model import CostModel, StepTime, read_profile
from testbed.serving.device_faults import ILLEGAL_ADDRESS, INVALID_VALUE, LAUNCH_FAILURE
from testbed.serving.device_messages import ON_DEVICE, LaunchStep, StepDone, StepFailed
from testbed.serving.engine import Engine, Lane
from testbed.serving.executor import Ended
from testbed.serving.graph_cache import DECODE, PREFILL, Graph
from testbed.serving.host_work import HostWork, HostWorked
from testbed.serving.requests import Abandon, Refused, Request, Sampling, Submit
from testbed.serving.text_model import TextModel
from testbed.serving.tokens import ByteVocabulary
from testbed.units import MILLISECOND, SECOND
from tests.conformance.serving_world import ENGINE

PARAMETERS = HostDrivenParameters(**ENGINE)
COSTS = host_costs(PARAMETERS)
SERIAL = COSTS._replace(loop=host_costs(HostDrivenParameters(**ENGINE, overlapped=False)).loop)
LONG_PROMPTS = host_costs(HostDrivenParameters(**ENGINE, visit_ns=2_000.0))
VOCABULARY = ByteVocabulary()
PREFILL_GRAPH = Graph(PREFILL, 1, 128)
DECODE_GRAPH = Graph(DECODE, 1, 128)


def api() -> ApiServer:
    return ApiServer(PARAMETERS, COSTS, vocabulary=VOCABULARY)


def core(costs: HostCosts = COSTS) -> EngineCore:
    return EngineCore(PARAMETERS, costs, kv_blocks=64, eos=VOCABULARY.eos)


def worker() -> Worker:
    return Worker(PARAMETERS, COSTS)


def device(executor: Any = None) -> LaunchedDevice:
    engine = Engine(CostModel(read_profile("llama-3-8b.toml")), TextModel("a b c\n", VOCABULARY))
    return LaunchedDevice(PARAMETERS.graphs(), engine, executor=executor)


def lane(request: int = 1, place: int = 0, context: int = 5, tail: tuple[int, int] = (97, 98)) -> Lane:
    return Lane(request, place, context, tail, 1.0, 1.0, 7, ignore_eos=True)


def delivered(effects: Sequence[Effect], to: str = "") -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Deliver) and to in ("", effect.to)]


def asked(effects: Sequence[Effect]) -> list[HostWork]:
    return [effect.work for effect in effects if isinstance(effect, Compute)]


def emitted(effects: Sequence[Effect], kind: type[Any]) -> list[Any]:
    return [effect.event for effect in effects if isinstance(effect, Emit) and isinstance(effect.event, kind)]


def worked(machine: Machine, now: int, work: HostWork) -> Sequence[Effect]:
    return machine.receive(now, HostWorked(work.ticket, work.operation, work.amount))


EVERY_MESSAGE: tuple[HostMessage, ...] = (
    AddRequest(1, (5, 6), 7, Sampling(0.5, 0.9, 3, ignore_eos=False)),
    WithdrawRequest(1),
    StepOutput((1, 2), (10, 11), (None, "stop")),
    RequestsFailed((1, 2), "unavailable", "the GPU failed"),
    RunStep(3, DECODE_GRAPH, (lane(), lane(2, tail=ON_DEVICE))),
    StepTaken(3, (10,)),
    StepLost(3, "code", "detail"),
)


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda message: type(message).__name__)
def test_every_message_between_processes_survives_as_bytes(message: HostMessage) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (api(), HostWorked(99, "tokenise", 1)),
        (api(), StepTaken(1, (5,))),
        (core(), StepTaken(1, (5,))),
        (core(), HostWorked(1, "update", 1)),
        (core(), StepLost(1, "code", "detail")),
        (worker(), HostWorked(1, "launch", 1)),
        (worker(), StepDone(1, (5,))),
        (worker(), StepFailed(1, "code", "detail")),
        (worker(), Abandon("r")),
        (device(), StepDone(1, (5,))),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_what_a_machine_has_no_use_for_raises_and_changes_nothing(machine: Machine, message: Message) -> None:
    told = [name for name in ("state", "serving", "requests", "steps") if hasattr(machine, name)]
    before = {name: repr(getattr(machine, name)) for name in told}
    with pytest.raises(UnexpectedMessage):
        machine.receive(0, message)
    assert before == {name: repr(getattr(machine, name)) for name in before}
    assert machine.deadline() is None
    assert machine.wake(10 * SECOND) == ()


def test_a_client_that_leaves_before_its_prompt_is_tokenised_never_reaches_the_core() -> None:
    server = api()
    (work,) = asked(server.receive(0, Submit(Request("r", "abc", 4))))
    assert emitted(server.receive(1, Abandon("r")), RequestAbandoned)
    assert worked(server, 2, work) == []
    assert server.serving == server.working == 0


def test_prompts_are_taken_in_one_after_another_and_texts_of_tokens_go_out_between_their_pieces() -> None:
    server = ApiServer(PARAMETERS, LONG_PROMPTS, vocabulary=VOCABULARY, to="clients")
    (first,) = asked(server.receive(0, Submit(Request("long", "ab" * 20, 4))))
    assert first.amount == SLICE
    assert asked(server.receive(1, Submit(Request("left", "ab" * 20, 4)))) == []
    assert asked(server.receive(1, Submit(Request("next", "ab", 4, prompt_ids=(97, 98))))) == []
    assert emitted(server.receive(1, Abandon("left")), RequestAbandoned)
    amounts, work, added = [first.amount], first, []
    while not added:
        out = server.receive(2, HostWorked(work.ticket, work.operation, work.amount))
        added = delivered(out, "core")
        (work,) = asked(out)
        amounts.append(work.amount)
    length = len(VOCABULARY.encode("ab" * 20))
    assert sum(amounts[:-1]) == LONG_PROMPTS.take_in(length, text=True) > 2 * SLICE
    # What is asked for next is of the prompt whose client is there still, and whose ids are made already.
    assert work.amount == min(SLICE, LONG_PROMPTS.take_in(2, text=False))
    (texts,) = asked(server.receive(3, StepOutput((added[0].request,), (97,), (None,))))
    assert texts.operation == "detokenise"
    assert len(delivered(worked(server, 4, texts), "clients")) == 1


def test_a_failure_is_told_behind_the_tokens_that_came_before_it() -> None:
    server = api()
    (tokenise,) = asked(server.receive(0, Submit(Request("r", "abc", 4))))
    (added,) = delivered(worked(server, 1, tokenise), "core")
    assert isinstance(added, AddRequest)
    (tokens,) = asked(server.receive(2, StepOutput((added.request,), (97,), (None,))))
    (failure,) = asked(server.receive(3, RequestsFailed((added.request,), "unavailable", "gone")))
    assert len(delivered(worked(server, 4, tokens), "clients")) == 1
    (refused,) = delivered(worked(server, 5, failure), "clients")
    assert isinstance(refused, Refused)
    assert refused.reason == "unavailable"
    assert server.serving == 0


def test_sampling_is_what_thirty_two_bits_hold() -> None:
    """Blink's descriptor has 32-bit floats, so the same words of a client must mean the same to every server."""
    assert as_on_device(Sampling(0.7, 0.9)).temperature == pytest.approx(0.7, abs=1e-7)
    assert as_on_device(Sampling(0.7, 0.9)).temperature != 0.7
    assert as_on_device(Sampling(1.0, 0.5, 3, ignore_eos=False)) == Sampling(1.0, 0.5, 3, ignore_eos=False)


def test_a_core_whose_scheduling_is_overlapped_is_one_step_ahead_and_leaves_the_tail_to_the_device() -> None:
    ahead = delivered(core().receive(0, AddRequest(1, (97, 98), 4, Sampling())), "worker")
    assert [step.graph.kind for step in ahead if isinstance(step, RunStep)] == [PREFILL, DECODE]
    assert isinstance(ahead[1], RunStep)
    assert ahead[1].lanes[0].tail == ON_DEVICE
    assert (ahead[1].lanes[0].place, ahead[1].lanes[0].context) == (1, 3)
    (only,) = delivered(core(SERIAL).receive(0, AddRequest(1, (97, 98), 4, Sampling())), "worker")
    assert isinstance(only, RunStep)
    assert only.lanes[0].tail == (97, 98)


def test_a_length_that_is_known_is_not_decoded_beyond() -> None:
    assert len(delivered(core().receive(0, AddRequest(1, (97,), 1, Sampling())), "worker")) == 1


def test_a_core_without_a_device_fails_everybody_and_all_who_come_later() -> None:
    engine = core()
    engine.receive(0, AddRequest(1, (97,), 4, Sampling()))
    engine.receive(1, AddRequest(2, (97,), 400, Sampling()))
    (failed,) = delivered(engine.receive(2, StepLost(1, "code", "detail")), "api")
    assert failed == RequestsFailed((1, 2), "unavailable", "the GPU failed")
    assert engine.state is CoreState.FAULTED
    assert (engine.kv_blocks_free, engine.requests) == (64, 0)
    assert engine.receive(3, StepLost(2, "lost", "")) == []
    assert delivered(engine.receive(4, AddRequest(3, (97,), 4, Sampling())), "api")


def test_a_worker_gives_a_silent_device_up_and_says_so_to_every_later_step() -> None:
    machine = worker()
    prepare, launch = asked(machine.receive(0, RunStep(1, PREFILL_GRAPH, (lane(),))))
    worked(machine, 1, prepare)
    assert delivered(worked(machine, 2, launch), "gpu0/device") == [LaunchStep(1, PREFILL_GRAPH, (lane(),))]
    assert machine.deadline() == 2 + PARAMETERS.completion_patience
    out = machine.wake(2 + PARAMETERS.completion_patience)
    assert emitted(out, DeviceFaulted)[0].code == "completionTimeout"
    assert delivered(out, "core") == [StepLost(1, "completionTimeout", "launch 1 has not ended")]
    assert machine.state is WorkerState.LOST
    assert machine.receive(70 * SECOND, StepDone(1, (5,))) == []
    assert isinstance(delivered(machine.receive(71 * SECOND, RunStep(2, DECODE_GRAPH, (lane(),))))[0], StepLost)


def test_a_workers_next_step_is_launched_before_tokens_are_passed_on() -> None:
    machine = worker()
    works = list(asked(machine.receive(0, RunStep(1, PREFILL_GRAPH, (lane(),)))))
    assert machine.receive(0, RunStep(2, DECODE_GRAPH, (lane(place=1, tail=ON_DEVICE),))) == []
    for work in works:
        worked(machine, 1, work)
    out = machine.receive(2, StepDone(1, (97,)))
    assert delivered(out) == []
    prepare, launch = asked(out)
    assert worked(machine, 3, prepare) == []
    assert [type(message) for message in delivered(worked(machine, 4, launch))] == [LaunchStep, StepTaken]


def launched(machine: LaunchedDevice, *steps: LaunchStep, now: int = 0) -> list[Effect]:
    return [effect for step in steps for effect in machine.receive(now, step)]


def ended(machine: LaunchedDevice) -> list[StepDone]:
    done: list[StepDone] = []
    while (due := machine.deadline()) is not None:
        done += [message for message in delivered(machine.wake(due)) if isinstance(message, StepDone)]
    return done


def test_a_device_runs_in_order_and_fills_in_the_tails_that_only_it_has() -> None:
    one = device()
    launched(
        one,
        LaunchStep(1, PREFILL_GRAPH, (lane(),)),
        LaunchStep(2, DECODE_GRAPH, (lane(place=1, context=6, tail=ON_DEVICE),)),
        LaunchStep(3, DECODE_GRAPH, (lane(place=2, context=7, tail=ON_DEVICE),)),
    )
    ahead = [done.tokens[0] for done in ended(one)]
    other, tail = device(), (97, 98)
    for place, token in enumerate(ahead):
        graph = DECODE_GRAPH if place else PREFILL_GRAPH
        launched(other, LaunchStep(place + 1, graph, (lane(place=place, context=5 + place, tail=tail),)))
        assert ended(other)[0].tokens == (token,)
        tail = (tail[1], token)


@pytest.mark.parametrize(
    ("step", "code", "lasting"),
    [
        (LaunchStep(1, Graph(DECODE, 3, 127), (lane(),)), INVALID_VALUE, False),
        (LaunchStep(1, DECODE_GRAPH, (lane(), lane(2))), ILLEGAL_ADDRESS, True),
        (LaunchStep(1, DECODE_GRAPH, ()), ILLEGAL_ADDRESS, True),
        (LaunchStep(1, DECODE_GRAPH, (lane(context=129),)), ILLEGAL_ADDRESS, True),
        (LaunchStep(1, DECODE_GRAPH, (lane(9, 1, tail=ON_DEVICE),)), ILLEGAL_ADDRESS, True),
    ],
    ids=["never captured", "too many lanes", "no lanes", "too long", "tail of nobody"],
)
def test_a_device_refuses_what_would_not_run(step: LaunchStep, code: str, lasting: bool) -> None:
    machine = device()
    (failed,) = delivered(machine.receive(0, step), "host0/worker")
    assert isinstance(failed, StepFailed)
    assert (failed.launch, failed.code) == (1, code)
    after = delivered(machine.receive(1, LaunchStep(2, PREFILL_GRAPH, (lane(),))))
    assert [message.code for message in after if isinstance(message, StepFailed)] == [LAUNCH_FAILURE] * lasting


class Measuring:
    """An executor that says only afterwards how long a graph took."""

    def __init__(self) -> None:
        self.news: list[Ended] = []

    def begin(self, launch: int, graph: Graph, lanes: Sequence[Lane]) -> StepTime | None:
        return None

    def waiting(self) -> bool:
        return bool(self.news)

    def ended(self) -> Sequence[Ended]:
        news, self.news = self.news, []
        return news

    def cancel(self) -> None:
        self.news.clear()


@pytest.mark.parametrize(("duration", "end"), [(5 * MILLISECOND, 7 * MILLISECOND), (9 * MILLISECOND, 10 * MILLISECOND)])
def test_a_graph_that_a_real_device_times_ends_when_it_says_but_not_in_the_past(duration: int, end: int) -> None:
    executor = Measuring()
    machine = device(executor)
    machine.receive(1 * MILLISECOND, LaunchStep(1, PREFILL_GRAPH, (lane(),)))
    assert machine.deadline() is None
    executor.news = [Ended(1, duration)]
    assert machine.deadline() == 0
    machine.wake(7 * MILLISECOND)
    if duration == 9 * MILLISECOND:
        assert machine.deadline() == end
        assert emitted(machine.wake(end), TokensSampled)
    assert machine.deadline() is None
