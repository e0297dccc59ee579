from __future__ import annotations

import msgspec
import pytest

from testbed.events import kv_events, schema
from testbed.events.log import Record
from testbed.experiment.agentic_figures import AgenticFigures
from testbed.experiment.run_facts import NO_FACTS, HopModel, RunFacts
from testbed.experiment.spec import Bound
from testbed.experiment.summary import (
    SystemSummary,
    fold_trial,
    read_summary,
    summarise,
    summarise_system,
    write_summary,
)
from testbed.metrics.latency import EVERYTHING
from tests.testbed.metrics.agentic_stories import BLOCK_TOKENS, FULL_BYTES, NODES, agentic_run, begin, finish, turn
from tests.testbed.metrics.stories import MS, small_run

MODEL = HopModel(BLOCK_TOKENS, FULL_BYTES, "buffer", 1, persist=True, storage_nics=1)
FACTS = RunFacts(dict(NODES), {}, MODEL)


def of(*runs: list[Record], facts: RunFacts = NO_FACTS) -> SystemSummary:
    trials = [fold_trial(f"t{place}", "ours", "", run, facts, place) for place, run in enumerate(runs)]
    return summarise_system(trials, EVERYTHING)


def test_a_run_without_kv_traffic_has_none_of_the_parts() -> None:
    system = of(small_run())
    assert all(getattr(system, name) is None for name in AgenticFigures.__struct_fields__)


def test_jct_of_repeats_is_the_mean_of_theirs_and_agents_are_pooled() -> None:
    system = of(agentic_run(2, 2), agentic_run(2, 4))
    assert system.jct is not None
    # A turn takes 38 ms: 18 to its first token, four more tokens 5 ms apart.
    assert (system.jct.least_s, system.jct.most_s) == (0.076, 0.152)
    assert system.jct.total_s == pytest.approx(0.114)
    assert (system.jct.agent_s.n, system.jct.agent_s.p50, system.jct.agents) == (4, 0.076, 4)
    assert (system.jct.failed, system.jct.running, system.jct.in_objectives) == (0, 0, 1.0)


def test_an_agent_that_is_still_at_work_leaves_the_run_without_a_completion_time() -> None:
    story = begin().at(10, "client0", kv_events.AgentStarted("a0000", 2, 10 * MS))
    end = turn(story, "a0000.t000", 10)
    system = of(finish(story, end))
    assert system.jct is not None
    assert (system.jct.total_s, system.jct.running, system.jct.agent_s.n) == (None, 1, 0)


def test_the_objectives_are_those_of_the_paper() -> None:
    story = begin().at(0, "client0", kv_events.AgentStarted("a0000", 2, 0))
    for name, sent, first, second in (("a0000.t000", 0, 4_000, 4_050), ("a0000.t001", 5_000, 9_001, 9_002),
                                      ("a0000.t002", 10_000, 10_100, 10_151)):  # fmt: skip
        story.at(sent, "client0", schema.RequestSent(name, sent * MS, 0, 10, 2))
        story.at(first, "client0", schema.TokenReceived(name, 0)).at(second, "client0", schema.TokenReceived(name, 1))
        story.at(second, "client0", schema.RequestFinished(name, 2, "length"))
    system = of(finish(story, 11_000))
    assert system.jct is not None
    assert system.jct.in_objectives == pytest.approx(1 / 3)


def test_paths_say_who_read_what() -> None:
    system = of(agentic_run(2, 3))
    assert system.paths is not None
    # Agent 0: none, decode 10, prefill 20; agent 1: none, prefill 10, decode 20 blocks.
    assert msgspec.to_builtins(system.paths.turns) == {"prefill": 2, "decode": 2, "split": 0, "none": 2}
    assert msgspec.to_builtins(system.paths.read_bytes) == {"prefill": 30 * FULL_BYTES, "decode": 30 * FULL_BYTES}
    assert system.paths.decode_share == 0.5
    assert (system.paths.hit_tokens, system.paths.prompt_tokens) == (60 * 64, 60 * 64 + 6 * 60)
    assert system.paths.hit_rate == pytest.approx(3840 / 4200)


def test_the_ttft_split_adds_up_to_the_whole() -> None:
    system = of(agentic_run(1, 2), agentic_run(1, 1))
    assert system.ttft_split is not None
    assert [part.mean_ms for part in system.ttft_split.values()] == [2, 1, 4, 8, 3]
    assert [part.share for part in system.ttft_split.values()] == pytest.approx(
        [2 / 18, 1 / 18, 4 / 18, 8 / 18, 3 / 18]
    )
    assert sum(part.mean_ms or 0 for part in system.ttft_split.values()) == system.ttft_ms.mean


def test_hops_stand_beside_their_model_where_the_plan_gives_one() -> None:
    for facts in (NO_FACTS, FACTS):
        system = of(agentic_run(2, 3), agentic_run(2, 3), facts=facts)
        assert system.hops is not None
        assert system.hops["pe1-2"].bytes == 60 * FULL_BYTES
        modelled = {name: hop.modelled_bytes for name, hop in system.hops.items()}
        if facts is NO_FACTS:
            assert set(modelled.values()) == {None}
        else:
            assert modelled == {name: hop.bytes for name, hop in system.hops.items()}


def test_attention_collectives_and_batches_are_pooled() -> None:
    system = of(agentic_run(2, 3), agentic_run(2, 3))
    assert system.attention is not None and system.collectives is not None and system.batches is not None  # noqa: PT018
    assert (system.attention.max_over_avg["whole"], system.attention.steps) == (1.5, 12)
    assert system.attention.max_over_avg["to_5_percent"] == 1.5
    dispatch, both = system.collectives["dispatch"], system.collectives["all_to_all"]
    assert (dispatch.n, dispatch.small, dispatch.time_us.p50) == (12, 0, 20.0)
    assert (both.n, both.small, both.bytes) == (12, 12, 12 * (65_536 + 4_096))
    prefill = system.batches["prefill"]
    assert (prefill.tokens.n, prefill.tokens.mean, prefill.computing, prefill.attention_ms) == (12, 60, 0.75, 3)


def test_storage_and_accidents_are_told() -> None:
    system = of(agentic_run(2, 3))
    assert system.blocks is not None and system.accidents is not None and system.chunks is not None  # noqa: PT018
    assert (system.blocks.read, system.blocks.written, system.blocks.verified) == (60, 6, 60 * 3)
    assert (system.blocks.rejected, system.blocks.reached_engines) == (1, 0)
    assert (system.chunks["read"].n, system.chunks["read"].disk_ms.p50) == (6, 3.0)
    assert (system.accidents.nodes_lost, system.accidents.turns_replaced) == (1, 1)
    assert system.accidents.lost == {"storage9": "pe0"}


def test_memory_and_engines_are_told_by_side() -> None:
    system = of(agentic_run(1, 1))
    assert system.buffers is not None and system.hbm is not None and system.engines is not None  # noqa: PT018
    assert (system.buffers["pe"].peak_bytes, system.buffers["pe"].waiting) == (FULL_BYTES, 1)
    assert set(system.buffers) == {"pe"}
    assert system.hbm["de"].total_bytes == 8 * FULL_BYTES
    assert (system.engines["pe"].busy, system.engines["pe"].tokens) == (0.6, 60)


def test_a_summary_with_all_parts_reads_back_as_it_was_written() -> None:
    made = summarise("r", "/r", [fold_trial("t", "ours", "", agentic_run(), FACTS)])
    assert made.outcome == "passed"
    assert read_summary(write_summary(made)) == made


def test_a_bound_on_each_repeat_is_held_against_each_of_them() -> None:
    trials = [
        fold_trial(f"{system}-{repeat}", system, "", agentic_run(2, turns), FACTS, repeat)
        for repeat, counts in enumerate([(2, 4), (3, 3)])
        for system, turns in zip(("a", "b"), counts, strict=True)
    ]
    words = "ratio(systems.a.jct.total_s, systems.b.jct.total_s)"
    (pooled,) = summarise("r", "/r", trials, {words: Bound(at_most=0.8)}).expectations
    assert (pooled.held, pooled.point) == (True, "")
    assert pooled.measured == pytest.approx(5 / 7)
    each = summarise("r", "/r", trials, {words: Bound(at_most=0.8, each_repeat=True)})
    assert [(row.held, row.measured, row.point) for row in each.expectations] == [
        (True, 0.5, "repeat 1"),
        (False, 1.0, "repeat 2"),
    ]
    assert (each.outcome, each.detail) == ("failed", "1 of 2 expectations did not hold")


def test_a_repeat_without_one_of_the_systems_breaks_its_bound_and_says_why() -> None:
    trials = [
        fold_trial("a0", "a", "", agentic_run(1, 2), FACTS, 0),
        fold_trial("b0", "b", "", agentic_run(1, 2), FACTS, 0),
        fold_trial("a1", "a", "", agentic_run(1, 2), FACTS, 1),
    ]
    expect = {"ratio(systems.a.jct.total_s, systems.b.jct.total_s)": Bound(at_most=2, each_repeat=True)}
    rows = summarise("r", "/r", trials, expect).expectations
    assert [row.held for row in rows] == [True, False]
    assert rows[1].reason == "jct.total_s has no value: nothing was measured"
