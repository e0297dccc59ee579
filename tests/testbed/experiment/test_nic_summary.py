from __future__ import annotations

import pytest

from testbed.events.fidelity_events import LinkMeasured
from testbed.events.kv_events import AgentFinished, AgentStarted, TransferFinished
from testbed.events.log import Record
from testbed.experiment.agentic_results import AgenticResults
from testbed.experiment.nic_summary import (
    cnic_figures,
    loaded_span,
    model_figures,
    resource_figures,
    snic_figures,
    span_of,
)
from testbed.experiment.run_facts import NO_FACTS, HopModel, RunFacts
from testbed.experiment.summary import fold_trial
from testbed.units import MILLISECOND as MS
from testbed.units import SECOND
from tests.testbed.metrics.agentic_stories import BLOCK_TOKENS, FULL_BYTES, NODES, agentic_run, begin
from tests.testbed.metrics.stories import Story

RATE = 8_000_000
"""1 byte in a microsecond."""
SNICS = ("pe0.snic0", "pe1.snic0", "de0.snic0", "storage0.snic0")
RATES = {f"{port}.{kind}": RATE for port in SNICS for kind in ("snic_rx", "snic_tx")}
FACTS = RunFacts(dict(NODES), RATES)
MODEL = HopModel(BLOCK_TOKENS, FULL_BYTES, "buffer", 1, persist=True, storage_nics=1)


def trial(records: list[Record], facts: RunFacts = FACTS) -> AgenticResults:
    return fold_trial("t", "ours", "", records, facts).agentic


def read(story: Story, port: str, begin_ms: int, end_ms: int, size: int) -> Story:
    """A storage read into `port`."""
    crossed = ("storage0.snic0.snic_tx", f"{port}.snic_rx", f"{port.partition('.')[0]}.dram")
    transfer = TransferFinished("t", "pe1-2", -1, "storage0.snic0", port, size, 1, begin_ms * MS, crossed)
    return story.at(end_ms, "storage0", transfer)


def test_busy_is_of_the_rate_and_of_the_time_between_the_first_storage_transfer_and_the_last() -> None:
    story = begin()
    for start in range(1_000, 2_000, 100):
        read(story, "pe0.snic0", start, start + 100, 90_000)
    read(story, "pe1.snic0", 1_900, 2_000, 50_000)
    found = snic_figures([trial(story.records())])
    assert found is not None
    assert found.pe.busy == pytest.approx((0.9 + 0.05) / 2, rel=0.01)
    assert found.pe.busiest == pytest.approx(0.9, rel=0.01)
    assert found.de.busy == 0.0, "idle, and known to be there"
    assert found.storage.busy == pytest.approx(0.95, rel=0.01)
    assert (found.pe.bytes, found.de.bytes, found.ports) == (950_000, 0, 3)


def test_loaded_ends_when_half_of_the_agents_have_ended() -> None:
    story = begin()
    for number, end in enumerate((1_500, 1_500, 9_000, 9_000)):
        story.at(1_000, "client0", AgentStarted(f"a{number}", 1, SECOND))
        story.at(end, "client0", AgentFinished(f"a{number}", "finished", 1, end * MS - SECOND))
    story.at(1_400, "client0", AgentStarted("a4", 1, SECOND)).at(1_450, "client0", AgentFinished("a4", "failed", 0, 1))
    for start in range(1_000, 1_500, 100):
        read(story, "pe0.snic0", start, start + 100, 100_000)
    read(story, "pe0.snic0", 8_900, 9_000, 1_000)
    results = trial(story.records())
    assert span_of(results) == (SECOND, 9 * SECOND)
    assert loaded_span(results) == (SECOND, 1_500 * MS)
    found = snic_figures([results])
    assert found is not None
    assert found.pe.busiest == pytest.approx(0.5 / 8, rel=0.01)
    assert found.pe.loaded == pytest.approx(0.5, rel=0.03), "mean of a full one and an idle one"


def test_an_emulation_has_the_kernels_counters_beside() -> None:
    story = begin(clock="wall", dilation=10.0)
    read(story, "pe0.snic0", 0, 100, 90_000)
    for port, rate in (("pe0.snic0", RATE * 95 // 100), ("pe1.snic0", 0), ("de0.snic0", RATE // 2)):
        for t in (50, 100):
            story.at(t, "bench", LinkMeasured(port, -1, 500 * MS, 1, 1, 0, rate, RATE))
    found = snic_figures([trial(story.records())])
    assert found is not None
    assert (found.pe.counted, found.de.counted, found.storage.counted) == (0.475, 0.5, None)


def test_balance_counts_idle_nics_and_excess_is_what_lies_above_even() -> None:
    story = begin()
    read(story, "pe0.snic0", 0, 99, 60_000)
    read(story, "pe1.snic0", 0, 99, 30_000)
    found = snic_figures([trial(story.records())])
    assert found is not None
    assert found.max_over_avg == {"100ms": 2.0, "1s": 2.0, "10s": 2.0}
    assert found.excess["1s"] == 1.0
    assert found.windows == {"100ms": 1, "1s": 1, "10s": 1}


def test_repeats_weigh_alike() -> None:
    even = read(read(read(begin(), "pe0.snic0", 0, 9, 5), "pe1.snic0", 0, 9, 5), "de0.snic0", 0, 9, 5)
    alone = read(begin(), "pe0.snic0", 0, 9, 50_000)
    found = snic_figures([trial(even.records()), trial(alone.records())])
    assert found is not None
    assert found.max_over_avg["1s"] == (1.0 + 3.0) / 2


def test_without_a_plan_there_are_bytes_and_balance_but_no_shares() -> None:
    found = snic_figures([trial(agentic_run(2, 3), NO_FACTS)])
    assert found is not None
    assert (found.pe.busy, found.pe.busiest) == (None, None)
    assert found.pe.bytes == 30 * FULL_BYTES
    assert found.ports == 3


def test_compute_nics_are_balanced_by_their_wires() -> None:
    found = cnic_figures([trial(agentic_run(2, 3), NO_FACTS)])
    assert found is not None
    # Whatever goes between a prefill and a decode node crosses one wire of each: de0 has both prefill nodes' bytes.
    assert found.max_over_avg["10s"] == pytest.approx(1.5, rel=0.05)
    assert cnic_figures([trial(begin().records())]) is None


def test_resources_of_every_kind_are_told_by_side() -> None:
    found = resource_figures([trial(agentic_run(2, 3))])
    assert found is not None
    assert found["pe"]["snic_rx"].bytes == 30 * FULL_BYTES
    assert found["de"]["dram"].bytes > found["pe"]["dram"].bytes > 0
    assert found["pe"]["dram"].busy is None, "no rate in the plan"
    assert resource_figures([trial(begin().records())]) is None


def test_measured_bytes_are_those_of_the_hop_model() -> None:
    facts = RunFacts(dict(NODES), RATES, MODEL)
    found = model_figures([trial(agentic_run(2, 3), facts)])
    assert found is not None
    assert (found.snic_percent, found.cnic_percent, found.counted_percent) == (0, 0, None)
    assert model_figures([trial(agentic_run(2, 3), FACTS)]) is None


def test_the_worst_port_is_named() -> None:
    facts = RunFacts(dict(NODES), RATES, MODEL)
    records = agentic_run(2, 3)
    half = next(record for record in records if getattr(record.event, "hop", "") == "pe1-2")
    records.remove(half)
    found = model_figures([trial(records, facts)])
    assert found is not None
    assert found.snic_percent == pytest.approx(100 * half.event.blocks / (20 if half.event.blocks == 20 else 10))  # type: ignore[attr-defined]
    assert found.where in {"pe0.snic0.snic_rx", "pe1.snic0.snic_rx"}
    assert found.cnic_percent == 0


def test_a_run_without_storage_traffic_has_no_figures_of_it() -> None:
    assert snic_figures([trial(begin().records())]) is None
