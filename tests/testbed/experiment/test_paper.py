from __future__ import annotations

import msgspec
import pytest

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.metric_paths import METRICS
from testbed.experiment.paper import Ours, Paper, PaperSystem, beside, beside_ratios, bundled_papers, read_paper
from testbed.experiment.summary import fold_trial, summarise_system
from testbed.metrics.latency import EVERYTHING
from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.serving.models import MODELS
from tests.testbed.metrics.agentic_stories import agentic_run
from tests.testbed.metrics.stories import small_run


def blink() -> Paper:
    return bundled_papers()[0]


def dualpath() -> Paper:
    return bundled_papers()[1]


def known(paper: Paper, table: str, system: str) -> tuple[float, ...]:
    (found,) = [row.values for one in paper.tables if one.name == table for row in one.rows if row.system == system]
    return found


def agentic(turns: int, **parameters: object) -> Ours:
    summary = summarise_system([fold_trial("t", "s", "", agentic_run(2, turns))], EVERYTHING)
    return Ours("dualpath", "ds-27b", parameters, summary)


BASIC = {"read_path": "prefill", "placement": "scheduled", "layerwise": True}
OURS = {"read_path": "shorter_queue", "placement": "scheduled", "layerwise": True}


def value(table: str, model: str, system: str, metric: str) -> float:
    (found,) = [
        row.values[place]
        for one in blink().tables if one.name == table
        for row in one.rows if (row.model, row.system) == (model, system)
        for place, column in enumerate(one.columns) if column.metric == metric
    ]  # fmt: skip
    return found


@pytest.mark.parametrize("paper", bundled_papers(), ids=lambda paper: str(paper.paper).partition(":")[0])
def test_every_value_has_a_condition_a_source_and_a_known_model(paper: Paper) -> None:
    served = {**MODELS, **AGENTIC_MODELS}
    for table in paper.tables:
        assert table.condition
        assert table.source
        named = {row.model for row in table.rows if row.system in paper.systems}
        assert named - {""} <= set(served), table.name
    for ratio in paper.ratios:
        assert {ratio.over, ratio.under} <= set(paper.systems)
        assert ratio.metric in METRICS
        assert ratio.experiments
    kinds = {kind for told in paper.systems.values() for kind in ((told,) if isinstance(told, str) else told.kinds)}
    assert kinds <= set(SYSTEMS)


def test_the_parameters_that_make_a_papers_system_are_parameters_of_ours() -> None:
    for name, told in dualpath().systems.items():
        assert isinstance(told, PaperSystem)
        for kind in told.kinds:
            msgspec.convert(told.where, SYSTEMS[kind].parameters)
        assert told.where, name


def test_the_papers_own_sums_come_out() -> None:
    """Ratios that the paper states in words must follow from the values as we typed them."""
    assert value("below saturation", "qwen-3-30b-a3b", "SGLang 0.5.8", "ttft_ms.p99") / value(
        "below saturation", "qwen-3-30b-a3b", "Blink", "ttft_ms.p99"
    ) == pytest.approx(8.47, abs=0.01)
    assert value("below saturation", "qwen-3-30b-a3b", "SGLang 0.5.8", "tpot_ms.p99") / value(
        "below saturation", "qwen-3-30b-a3b", "Blink", "tpot_ms.p99"
    ) == pytest.approx(3.40, abs=0.01)
    alone, busy = "vLLM 0.13 alone", "vLLM 0.13, 24 threads"
    slow = value("interference on vLLM", "llama-3-8b", alone, "throughput_tokens_per_s")
    assert slow / value("interference on vLLM", "llama-3-8b", busy, "throughput_tokens_per_s") == pytest.approx(
        3.8, abs=0.02
    )
    grown = value("interference on vLLM", "llama-3-8b", busy, "ttft_ms.p99")
    assert grown / value("interference on vLLM", "llama-3-8b", alone, "ttft_ms.p99") == pytest.approx(139, abs=1)
    saved = 1 - value("energy", "qwen-3-30b-a3b", "Blink", "energy.mj_per_token") / value(
        "energy", "qwen-3-30b-a3b", "TensorRT-LLM 1.1.0", "energy.mj_per_token"
    )
    assert saved == pytest.approx(0.486, abs=0.001)


def test_ours_stands_beside_the_papers_only_for_the_same_system_model_and_metric() -> None:
    summary = summarise_system([fold_trial("t", "blink", "", small_run())], EVERYTHING)
    rows = beside(blink(), Ours("blink", "llama-3-8b", {}, summary))
    assert [(row.metric, row.paper, row.definition) for row in rows] == [
        ("ttft_ms.p99", 653.8, "guidellm"),
        ("tpot_ms.p99", 15.1, "guidellm"),
    ]
    # Four requests are too few for a p99, and no other figure is put in its place.
    assert [(row.ours, row.n) for row in rows] == [(None, 4), (None, 4)]
    assert all(row.condition and row.source and row.metric in METRICS for row in rows)
    assert beside(blink(), Ours("blink", "phi-4-15b", {}, summary)) == ()
    assert beside(blink(), Ours("vllm", "llama-3-8b", {}, summary)) == ()


def test_a_system_with_neighbours_is_another_of_the_papers() -> None:
    """Beside neighbours it is not the isolated one, and on other cores than its own it is none of the paper's."""
    summary = summarise_system([fold_trial("t", "vllm", "", small_run())], EVERYTHING)

    def names(threads: int, *kinds: str, displaced: bool = False, shape: str = "vllm") -> tuple[str, ...]:
        ours = Ours("host-driven", "llama-3-8b", {"shape": shape}, summary, threads, displaced, kinds)
        return blink().names(ours)

    assert names(0) == ("vLLM 0.13.0", "vLLM 0.13 alone")
    assert names(12, "pbzip2") == ("vLLM 0.13.0 beside", "vLLM 0.13, 12 threads")
    assert names(12, "pbzip2", "compile") == ("vLLM 0.13.0 beside",), "Table 1 is pbzip2's alone"
    assert names(5, "pbzip2") == ("vLLM 0.13.0 beside",)
    assert names(0, shape="sglang") == ("SGLang 0.5.8",)
    assert names(0, displaced=True) == names(12, "pbzip2", displaced=True) == ()


def test_inflations_stand_beside_those_of_the_same_model() -> None:
    summary = summarise_system([fold_trial("t", "vllm", "", small_run(requests=120))], EVERYTHING)

    def found(model: str, experiment: str = "blink-interference") -> dict[str, list[float]]:
        alone = Ours("host-driven", model, {"shape": "vllm"}, summary)
        systems = {"alone": alone, "beside": msgspec.structs.replace(alone, threads=12)}
        rows = beside_ratios(blink(), systems, experiment)
        return {pair: [row.paper for row in there] for pair, there in rows.items()}

    assert found("llama-3-8b") == {"beside ÷ alone": [11.12, 7.35]}
    assert found("qwen-3-30b-a3b") == {"beside ÷ alone": [2.02, 3.04]}
    assert found("phi-4-15b") == found("llama-3-8b", "blink-demo") == {}
    for ratio in blink().ratios:
        column = 0 if ratio.metric == "ttft_ms.p99" else 1
        (row,) = [row for table in blink().tables if table.name == "under interference" for row in table.rows
                  if (row.model, row.system) == (ratio.model, ratio.under)]  # fmt: skip
        assert row.values[column] == ratio.value


def test_ours_is_by_the_papers_definition() -> None:
    summary = summarise_system([fold_trial("t", "blink", "", small_run(requests=120, tokens=2))], EVERYTHING)
    by_metric = {row.metric: row.ours for row in beside(blink(), Ours("blink", "llama-3-8b", {}, summary))}
    assert by_metric["tpot_ms.p99"] == summary.definitions["guidellm"].tpot_ms.p99 == (20.5 + 6) / 2
    assert summary.tpot_ms.p99 == 6.0


def test_dualpaths_own_sums_come_out() -> None:
    """What the paper says in words must follow from the values as we typed them."""
    panels = [table for table in dualpath().tables if table.name.startswith("Fig. 7, DS")]
    gains: dict[str, list[float]] = {}
    for table in panels:
        rows = {row.system: row.values for row in table.rows}
        gains.setdefault(table.rows[0].model, []).extend(
            basic / ours for basic, ours in zip(rows["Basic"], rows["Ours"], strict=True)
        )
        assert all(oracle <= ours for oracle, ours in zip(rows["Oracle"], rows["Ours"], strict=True))
    assert len(panels) == 5
    assert (min(gains["ds-27b"]), max(gains["ds-27b"])) == pytest.approx((1.23, 1.78), abs=0.005)
    assert max(gains["ds-660b"]) == pytest.approx(1.87, abs=0.005)
    shares = known(dualpath(), "Fig. 12 left, 0.2 agents a second", "Ours")
    assert sum(shares) == pytest.approx(1, abs=0.011)
    capacity = {(row.model, row.system): row.values[0] for table in dualpath().tables
                if table.name == "SLO capacity" for row in table.rows}  # fmt: skip
    ratios = [capacity[model, "Ours"] / capacity[model, "Basic"] for model in ("ds-27b", "ds-660b")]
    assert sum(ratios) / 2 == pytest.approx(1.96, abs=0.005)


def test_the_ablations_ratios_are_those_of_its_drawing() -> None:
    """The paper's percentages are means over numbers of agents; two of those are in the figure."""
    names = ("+ Layerwise", "+ Dual path", "Ours")
    whole = known(dualpath(), "Fig. 12 right, ablation", "Basic, all layers at once")
    for name in names:
        drawn = [a / b for a, b in zip(known(dualpath(), "Fig. 12 right, ablation", name), whole, strict=True)]
        (said,) = [ratio.value for ratio in dualpath().ratios
                   if ratio.over == name and ratio.under == "Basic, all layers at once"]  # fmt: skip
        assert sum(drawn) / 2 == pytest.approx(said, abs=0.01), name


def test_a_system_is_the_papers_by_the_parameters_that_matter() -> None:
    assert dualpath().names(agentic(1, **OURS)) == ("Ours",)
    assert dualpath().names(agentic(1, **BASIC)) == ("Basic", "+ Layerwise")
    assert "Oracle" in dualpath().names(agentic(1, read_path="bypass"))
    pool = msgspec.structs.replace(agentic(1), kind="dram_pool", parameters={**BASIC, "dram_pool_squeeze_bytes": 0})
    assert dualpath().names(pool) == ("SGL(MC)",)
    assert dualpath().names(Ours("blink", "", OURS, agentic(1).summary)) == ()


def test_ratios_stand_beside_the_papers_in_the_experiments_that_ask_for_them() -> None:
    systems = {"basic": agentic(4, **BASIC), "ours": agentic(2, **OURS)}
    found = beside_ratios(dualpath(), systems, "dualpath-paths")
    assert set(found) == {"basic ÷ ours"}
    assert [(row.metric, row.ours, row.paper) for row in found["basic ÷ ours"]] == [
        ("jct.total_s", 2.0, 1.23),
        ("jct.total_s", 2.0, 1.78),
    ]
    assert beside_ratios(dualpath(), systems, "another") == {}


def test_shares_stand_beside_any_models_and_latencies_beside_the_same_models_only() -> None:
    rows = {row.metric: row for row in beside(dualpath(), agentic(2, **OURS), "dualpath-online")}
    assert rows["ttft_split.reading.share"].ours == pytest.approx(4 / 18)
    assert rows["ttft_split.reading.share"].paper == 0.31
    assert (rows["ttft_ms.mean"].ours, rows["ttft_ms.mean"].n) == (18.0, 4)
    assert {row.paper for row in beside(dualpath(), agentic(2, **OURS), "dualpath-online")} >= {480, 1670}
    assert 1739 not in {row.paper for row in beside(dualpath(), agentic(2, **OURS), "dualpath-online")}
    assert beside(dualpath(), agentic(2, **OURS), "another") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "rows = [{ model = '', system = 's', values = [1, 2] }]\ncolumns = [{ metric = 'm', unit = 'ms' }]",
            "2 values, 1 columns",
        ),
        ("rows = []\ncolumns = [{ metric = 'm', unit = 'ms', definition = 'x' }]", "no definition is called 'x'"),
        ("rows = []\ncolumns = []\ncolour = 1", "colour"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(text: str, words: str) -> None:
    head = "paper = 'p'\nknown_from = 'k'\n[systems]\n[[tables]]\nname = 't'\ncondition = 'c'\nsource = 's'\n"
    with pytest.raises(msgspec.ValidationError, match=words):
        read_paper(head + text)
