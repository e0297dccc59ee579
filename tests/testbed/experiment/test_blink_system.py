"""Blink's row with several GPUs: the plan, and a whole simulated run of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from testbed.events.client_events import TokenReceived
from testbed.events.log import Record
from testbed.events.ordering import merge
from testbed.events.run_events import LineLogged
from testbed.events.schema import (
    PromptWritten,
    RequestArrived,
    RequestServed,
    SlotClaimed,
    SlotFound,
    TokensStreamed,
)
from testbed.experiment.launch import prepare
from testbed.experiment.reading import SpecError, read_spec
from testbed.experiment.simulation import simulate
from testbed.metrics.fold import Folding
from testbed.metrics.ring_state import RingFold
from testbed.metrics.spans import request_spans, slot_spans
from testbed.metrics.timeline import TimelineFold
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary

_BLINK = Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink"
SMALL, TWO_GPUS = _BLINK / "small.toml", _BLINK / "two-gpus.toml"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return deepseek_vocabulary()


def ran(folder: Path, vocabulary: Vocabulary, *overrides: str) -> list[Record]:
    run = prepare(read_spec(SMALL, overrides), folder, clock="simulated", run="20260101-000000-0a1b2c")
    end = simulate(run.plans[0], run.trials[0], vocabulary=vocabulary)
    assert (end.outcome, end.detail) == ("passed", "")
    return list(merge(run.trials[0].events))


def answers(records: list[Record]) -> dict[str, int]:
    received: dict[str, int] = defaultdict(int)
    for record in records:
        if isinstance(record.event, TokenReceived):
            received[record.event.name] += record.event.count
    return received


def test_a_plan_has_a_ring_and_a_connection_a_gpu(tmp_path: Path) -> None:
    run = prepare(read_spec(SMALL, ("systems.blink.gpus=3",)), tmp_path, clock="wall")
    (plan,) = run.plans
    assert [node.name for node in plan.nodes] == ["client0", "dpu0", "gpu0", "gpu1", "gpu2", "host0"]
    peers = {pair.peer for pair in plan.node("dpu0").queue_pairs}
    assert peers == {"gpu0", "gpu1", "gpu2"}
    addresses = {region.address for node in plan.nodes for region in node.regions}
    assert len(addresses) == 3


def test_two_gpus_share_the_requests_and_say_what_one_says(tmp_path: Path, vocabulary: Vocabulary) -> None:
    one = ran(tmp_path / "one", vocabulary)
    two = ran(tmp_path / "two", vocabulary, "systems.blink.gpus=2")
    assert answers(one) == answers(two)
    claims: dict[str, set[int]] = defaultdict(set)
    for record in two:
        if isinstance(record.event, SlotClaimed):
            claims[record.node].add(record.event.request)
    assert set(claims) == {"gpu0", "gpu1"}
    numbers = [record.event.request for record in two if isinstance(record.event, RequestArrived)]
    assert len(set(numbers)) == 8
    assert claims["gpu0"] | claims["gpu1"] == set(numbers)
    assert not claims["gpu0"] & claims["gpu1"]
    assert len([record for record in two if isinstance(record.event, RequestServed)]) == 8
    assert not [record for record in two if isinstance(record.event, LineLogged)]


def test_clients_are_streamed_to_from_every_front_end_of_the_dpu(tmp_path: Path, vocabulary: Vocabulary) -> None:
    records = ran(tmp_path, vocabulary, "systems.blink.gpus=2", "systems.blink.gpu_choice=round_robin")
    streamed = {record.event.request for record in records if isinstance(record.event, TokensStreamed)}
    assert sorted(number % 2 for number in streamed) == [0] * 4 + [1] * 4


@pytest.fixture(scope="module")
def shared_out(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> list[Record]:
    """The shipped experiment's arm with two GPUs, whole."""
    run = prepare(read_spec(TWO_GPUS), tmp_path_factory.mktemp("two"), clock="simulated", run="20260101-000000-0a1b2c")
    (place,) = [place for place, plan in enumerate(run.plans) if plan.system == "two"]
    assert simulate(run.plans[place], run.trials[place], vocabulary=vocabulary).outcome == "passed"
    return list(merge(run.trials[place].events))


def nameless(records: list[Record]) -> list[Record]:
    """The same log as it was before the front end named rings."""
    named = (SlotFound, PromptWritten)
    return [
        record._replace(event=msgspec.structs.replace(record.event, ring=""))
        if isinstance(record.event, named) else record
        for record in records
    ]  # fmt: skip


@pytest.mark.parametrize("told", [True, False])
def test_every_slot_is_its_own_gpus(shared_out: list[Record], told: bool) -> None:
    records = shared_out if told else nameless(shared_out)
    folding = Folding({"ring": RingFold(), "timeline": TimelineFold()}).take_all(records)
    view, timeline = folding.result("ring"), folding.result("timeline")
    claimed = {
        record.event.request: (record.node, record.event.slot)
        for record in shared_out if isinstance(record.event, SlotClaimed)
    }  # fmt: skip
    assert view.gaps == ()
    assert view.counts == {"empty": len(set(claimed.values()))}
    assert {(slot.ring, slot.slot) for slot in view.slots} == set(claimed.values())
    # Some numbers are taken in both rings, or this test would show nothing.
    assert len({slot for _, slot in claimed.values()}) < len(set(claimed.values()))
    assert {row.request: (row.ring, row.slot) for row in request_spans(timeline)} == claimed
    assert {(span.request, span.ring, span.slot) for span in slot_spans(timeline)} == {
        (request, *place) for request, place in claimed.items()
    }


def test_front_ends_name_the_ring_in_which_the_gpu_finds_the_request(shared_out: list[Record]) -> None:
    claimed = {record.event.request: record.node for record in shared_out if isinstance(record.event, SlotClaimed)}
    for kind in (SlotFound, PromptWritten):
        assert {r.event.request: r.event.ring for r in shared_out if isinstance(r.event, kind)} == claimed
    assert set(claimed.values()) == {"gpu0", "gpu1"}


def test_more_gpus_than_a_server_has_are_refused() -> None:
    with pytest.raises(SpecError, match="gpus must be 1 to 8, not 9"):
        read_spec(SMALL, ("systems.blink.gpus=9",))


@pytest.mark.parametrize("name", ["speculation", "tensor_parallel"])
def test_what_only_a_simulation_has_is_refused_by_an_emulation(name: str, tmp_path: Path) -> None:
    spec = read_spec(SMALL, (f"systems.blink.{name}={{}}",))
    with pytest.raises(ValueError, match=f"systems.blink: {name}: a model that no emulation has; run it on sim"):
        prepare(spec, tmp_path, clock="wall")
    assert not list(tmp_path.iterdir())
    assert prepare(spec, tmp_path, clock="simulated").plans
