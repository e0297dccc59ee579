from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.events.host_events import HostOperation, NeighbourMeasured, NeighbourStarted
from testbed.events.run_events import NodeReady
from testbed.events.schema import GraphLaunched, TokensSampled
from testbed.metrics.energy import PAPERS_SERVER, SAMPLE, EnergyFold, EnergyState, drawn
from testbed.metrics.fold import Folding
from testbed.units import MILLISECOND, SECOND
from tests.testbed.metrics.stories import Story, started

MODEL = PAPERS_SERVER
REST = MODEL.dram_w + MODEL.nic_w + MODEL.platform_w


def launched(launch: int, kind: str = "decode") -> GraphLaunched:
    return GraphLaunched(launch, kind, "g", "fire_and_forget", 1, 0, 1, 2_000)


def sampled(launch: int) -> TokensSampled:
    return TokensSampled(launch, (1,), (7,))


def nodes(*roles: str, dilation: float = 1.0) -> Story:
    story = Story().at(0, "bench", started(dilation=dilation))
    for role in roles:
        story.at(0, f"{role}0", NodeReady(role=role, pid=0))
    return story


def folded(story: Story) -> EnergyState:
    state: EnergyState = Folding({"energy": EnergyFold()}).take_all(story.records()).result("energy")
    return state


def at_plug(*watts: float) -> float:
    return sum(watts) / MODEL.supply_efficiency


def test_a_second_of_decoding_by_hand() -> None:
    story = nodes("gpu", "dpu", "host")
    story.at(0, "gpu0", launched(1)).at(1000, "gpu0", sampled(1))
    found = drawn(folded(story), 0, SECOND)
    assert found is not None
    assert found.samples == 2
    assert found.joules == pytest.approx(at_plug(MODEL.gpu_decode_w, MODEL.host_idle_w, MODEL.dpu_w, REST))
    assert found.parts["gpu"] == pytest.approx(at_plug(MODEL.gpu_decode_w))


def test_prefills_draw_more_than_decodes_and_gaps_less() -> None:
    story = nodes("gpu")
    story.at(0, "gpu0", launched(1, "prefill")).at(100, "gpu0", sampled(1))
    story.at(200, "gpu0", launched(2)).at(400, "gpu0", sampled(2))
    found = drawn(folded(story), 0, 500 * MILLISECOND)
    assert found is not None
    mean = 0.2 * MODEL.gpu_prefill_w + 0.4 * MODEL.gpu_decode_w + 0.4 * MODEL.gpu_idle_w
    assert found.parts["gpu"] == pytest.approx(at_plug(mean) * 0.5)


def test_a_graph_that_was_enqueued_early_begins_when_the_device_is_free() -> None:
    story = nodes("gpu", "host")
    story.at(0, "host0", launched(1)).at(50, "host0", launched(2))
    story.at(100, "gpu0", sampled(1)).at(200, "gpu0", sampled(2))
    assert sum(folded(story).decode.values()) == 200 * MILLISECOND


def test_a_chunk_without_tokens_ends_where_the_next_graph_begins() -> None:
    story = nodes("gpu")
    story.at(0, "gpu0", launched(1, "chunk")).at(40, "gpu0", launched(2)).at(50, "gpu0", sampled(2))
    state = folded(story)
    assert (sum(state.prefill.values()), sum(state.decode.values())) == (40 * MILLISECOND, 10 * MILLISECOND)
    assert not state.running["gpu0"]


def test_a_scheduler_that_starts_again_leaves_no_graph_running() -> None:
    story = nodes("gpu").at(0, "gpu0", launched(9)).at(500, "gpu0", NodeReady(role="gpu", pid=0))
    story.at(600, "gpu0", launched(1)).at(700, "gpu0", sampled(1))
    assert sum(folded(story).decode.values()) == 100 * MILLISECOND


def test_two_devices_draw_twice() -> None:
    story = nodes("gpu").at(0, "gpu1", NodeReady(role="gpu", pid=0))
    story.at(0, "gpu0", launched(1)).at(500, "gpu0", sampled(1))
    story.at(0, "gpu1", launched(1)).at(500, "gpu1", sampled(1))
    found = drawn(folded(story), 0, SAMPLE)
    assert found is not None
    assert found.parts["gpu"] == pytest.approx(at_plug(2 * MODEL.gpu_decode_w) / 2)


def test_host_work_is_what_it_takes_on_an_idle_core_however_long_it_waited() -> None:
    story = nodes("gpu", "host").at(0, "gpu0", launched(1)).at(1, "gpu0", sampled(1))
    story.at(500, "host0", HostOperation("core", "update", 100 * MILLISECOND, 500 * MILLISECOND))
    story.at(500, "gpu0", HostOperation("core", "update", 400 * MILLISECOND, 500 * MILLISECOND))  # not the host's
    found = drawn(folded(story), 0, SAMPLE)
    assert found is not None
    busy = 0.2 / MODEL.host_cores
    watts = MODEL.host_idle_w + busy * (MODEL.host_max_w - MODEL.host_idle_w)
    assert found.parts["host"] == pytest.approx(at_plug(watts) / 2)


@pytest.mark.parametrize("dilation", [1.0, 4.0])
def test_a_neighbour_on_the_whole_set_stands_for_the_papers(dilation: float) -> None:
    story = nodes("gpu", "host", dilation=dilation).at(0, "gpu0", launched(1)).at(1, "gpu0", sampled(1))
    wall = round(SECOND * dilation)
    story.at(0, "bench", NeighbourStarted("pbzip2", "pbzip2", 12, 1, (0, 2)))
    story.at(1000, "bench", NeighbourMeasured("pbzip2", wall, 10.0, "MB", 2 * wall))
    found = drawn(folded(story), 0, SECOND)
    assert found is not None
    watts = MODEL.host_idle_w + MODEL.beside_share * (MODEL.host_max_w - MODEL.host_idle_w)
    assert found.parts["host"] == pytest.approx(at_plug(watts))
    quiet = nodes("gpu", "host").at(0, "gpu0", launched(1)).at(1, "gpu0", sampled(1))
    planned = drawn(folded(quiet), 0, SECOND, beside=True)
    assert planned is not None
    assert planned.parts["host"] == pytest.approx(at_plug(watts))


def test_nothing_is_drawn_where_nothing_ran() -> None:
    assert drawn(folded(nodes("gpu", "dpu")), 0, SECOND) is None
    busy = nodes("gpu").at(0, "gpu0", launched(1)).at(9, "gpu0", sampled(1))
    assert drawn(folded(busy), 5, 5) is None
    assert drawn(folded(nodes("gpu").at(0, "gpu0", launched(1))), 0, SECOND) is None


def test_the_papers_server_is_within_the_papers_watts_when_it_serves() -> None:
    """Summary, energy: 1.1 to 1.4 kW for all systems. Isolated decoding is at the low end."""
    story = nodes("gpu", "dpu", "host").at(0, "gpu0", launched(1)).at(1000, "gpu0", sampled(1))
    state = folded(story)
    for beside in (False, True):
        found = drawn(state, 0, SECOND, beside=beside)
        assert found is not None
        assert 1_000 < found.joules < 1_400


@given(
    spans=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 900)), min_size=1, max_size=20),
    cut=st.integers(0, 60),
)
def test_busy_time_is_conserved_and_a_device_is_never_busier_than_one(spans: list[tuple[int, int]], cut: int) -> None:
    story, moment = nodes("gpu"), 0
    for number, (gap, length) in enumerate(spans):
        story.at(moment + gap, "gpu0", launched(number, "prefill" if number % 3 else "decode"))
        moment += gap + length
        story.at(moment, "gpu0", sampled(number))
    records = story.records()
    folding = Folding({"energy": EnergyFold()}).take_all(records[: min(cut, len(records))])
    again = Folding({"energy": EnergyFold()})
    again.restore(folding.snapshot())
    state: EnergyState = again.take_all(records[min(cut, len(records)) :]).result("energy")
    assert state == folded(story)
    assert sum(state.prefill.values()) + sum(state.decode.values()) == sum(length for _, length in spans) * MILLISECOND
    for number in {*state.prefill, *state.decode}:
        assert state.prefill.get(number, 0) + state.decode.get(number, 0) <= SAMPLE
    found = drawn(state, 0, moment * MILLISECOND)
    assert found is not None
    assert sum(found.parts.values()) == pytest.approx(found.joules)
    assert at_plug(MODEL.gpu_idle_w) - 1e-9 <= found.parts["gpu"] / found.seconds <= at_plug(MODEL.gpu_prefill_w) + 1e-9


def test_the_model_is_data() -> None:
    story = nodes("gpu").at(0, "gpu0", launched(1)).at(1000, "gpu0", sampled(1))
    free = msgspec.structs.replace(MODEL, supply_efficiency=1.0, platform_w=0, dram_w=0, nic_w=0, host_idle_w=0)
    found = drawn(folded(story), 0, SECOND, model=free)
    assert found is not None
    assert found.joules == pytest.approx(free.gpu_decode_w)
