"""The fit: it finds what made a table, says what it leaves unexplained, and the shipped figures are its result."""

import math

import msgspec
import pytest

from testbed.experiment.loop_fit import (
    BLINK,
    SHAPES,
    SYSTEMS,
    Fit,
    Fitted,
    distance,
    evaluated,
    fitted_of,
    isolated_table,
    least,
)
from testbed.experiment.paper import PAPERS, read_paper
from testbed.serving.host_loop import read_host_loops
from testbed.serving.models import MODELS

LOOPS = read_host_loops()
PAPER = isolated_table(read_paper((PAPERS / "blink.toml").read_text(encoding="utf-8")))
MADE = Fitted(
    96,
    {**dict.fromkeys(MODELS, 1.0), "qwen-3-32b": 1.2},
    {"tensorrt-llm": 1_000.0, "vllm": 3_000.0, "sglang": 6_000.0},
    dict.fromkeys(SHAPES, 1.0),
)


def test_the_papers_table_has_every_system_and_three_models():
    assert {name for _, name in PAPER} == set(SYSTEMS)
    assert len(PAPER) == 12
    assert PAPER["qwen-3-32b", BLINK] == (9481.3, 113.4, 2.00)


@pytest.mark.soak
def test_a_table_made_by_known_figures_gives_them_back():
    table = {("qwen-3-32b", name): evaluated(name, "qwen-3-32b", MADE, LOOPS, seeds=(1,)).figures for name in SYSTEMS}
    found = Fit(table, LOOPS, seeds=(1,)).best()
    assert found.engine_time["qwen-3-32b"] == pytest.approx(1.2, rel=0.01)
    for shape in SHAPES:
        assert found.serial_us[shape] == pytest.approx(MADE.serial_us[shape], rel=0.25)
    assert found.engine_time["phi-4-15b"] == pytest.approx(found.engine_time["qwen-3-32b"])
    assert set(found.experts.values()) == {1.0}, "no model of the table has experts"


def test_the_shipped_figures_are_complete_and_count_at_most_two_a_system_and_one_a_model():
    fitted = fitted_of(LOOPS)
    assert set(fitted.engine_time) == set(MODELS)
    assert set(fitted.serial_us) == set(fitted.experts) == set(SHAPES)
    assert set(LOOPS.orchestration.values()) == {1.0}
    with pytest.raises(ValueError, match="no engine_time for phi-4-15b"):
        fitted_of(msgspec.structs.replace(LOOPS, engine_time={m: 1.0 for m in MODELS if m != "phi-4-15b"}))


def test_experts_make_host_work_grow_where_a_model_has_them():
    fitted = fitted_of(LOOPS)
    assert {model: fitted.factor("vllm", model) > 1 for model in MODELS} == {
        model: bool(row.experts) for model, row in MODELS.items()
    }
    for shape in SHAPES:
        for model, row in MODELS.items():
            assert fitted.factor(shape, model) == LOOPS.factor(shape, row)


def test_a_figure_far_away_counts_little_more_than_one_further_away():
    assert distance((1.0,), (1.0,)) == 0
    assert distance((2.0,), (1.0,)) == pytest.approx(distance((0.5,), (1.0,)))
    near = distance((1.2,), (1.0,)) - distance((1.1,), (1.0,))
    far = distance((8.8,), (1.0,)) - distance((8.0,), (1.0,))
    assert 0 < far < near / 2


@pytest.mark.parametrize("at", [1.0, 7.3, 4_000.0])
def test_least_finds_the_bottom_of_a_bowl(at):
    assert least(lambda value: math.log(value / at) ** 2, 0.9, 5_000.0, rounds=6) == pytest.approx(at, rel=0.02)
