from __future__ import annotations

import msgspec
import pytest

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.metric_paths import METRICS
from testbed.experiment.paper import Paper, beside, bundled_papers, read_paper
from testbed.experiment.summary import fold_trial, summarise_system
from testbed.metrics.latency import EVERYTHING
from testbed.serving.models import MODELS
from tests.testbed.metrics.stories import small_run


def blink() -> Paper:
    (paper,) = bundled_papers()
    return paper


def value(table: str, model: str, system: str, metric: str) -> float:
    (found,) = [
        row.values[place]
        for one in blink().tables if one.name == table
        for row in one.rows if (row.model, row.system) == (model, system)
        for place, column in enumerate(one.columns) if column.metric == metric
    ]  # fmt: skip
    return found


def test_every_value_has_a_condition_a_source_and_a_known_model() -> None:
    for table in blink().tables:
        assert table.condition
        assert table.source
        assert {row.model for row in table.rows} - {""} <= set(MODELS)
    assert set(blink().systems.values()) <= set(SYSTEMS)


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
    saved = 1 - value("energy", "qwen-3-30b-a3b", "Blink", "energy_mj_per_token") / value(
        "energy", "qwen-3-30b-a3b", "TensorRT-LLM 1.1.0", "energy_mj_per_token"
    )
    assert saved == pytest.approx(0.486, abs=0.001)


def test_ours_stands_beside_the_papers_only_for_the_same_system_model_and_metric() -> None:
    summary = summarise_system([fold_trial("t", "blink", "", small_run())], EVERYTHING)
    rows = beside(blink(), "blink", "llama-3-8b", summary)
    assert [(row.metric, row.paper, row.definition) for row in rows] == [
        ("ttft_ms.p99", 653.8, "guidellm"),
        ("tpot_ms.p99", 15.1, "guidellm"),
    ]
    # Four requests are too few for a p99, and no other figure is put in its place.
    assert [(row.ours, row.n) for row in rows] == [(None, 4), (None, 4)]
    assert all(row.condition and row.source and row.metric in METRICS for row in rows)
    assert beside(blink(), "blink", "phi-4-15b", summary) == ()
    assert beside(blink(), "vllm", "llama-3-8b", summary) == ()


def test_ours_is_by_the_papers_definition() -> None:
    summary = summarise_system([fold_trial("t", "blink", "", small_run(requests=120, tokens=2))], EVERYTHING)
    by_metric = {row.metric: row.ours for row in beside(blink(), "blink", "llama-3-8b", summary)}
    assert by_metric["tpot_ms.p99"] == summary.definitions["guidellm"].tpot_ms.p99 == (20.5 + 6) / 2
    assert summary.tpot_ms.p99 == 6.0


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
