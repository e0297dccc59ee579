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
    system_of,
)
from testbed.experiment.paper import PAPERS, read_paper
from testbed.serving.host_loop import read_host_loops
from testbed.serving.models import MODELS

LOOPS = read_host_loops()
PAPER = isolated_table(read_paper((PAPERS / "blink.toml").read_text(encoding="utf-8")))
MADE = Fitted(
    96,
    {**dict.fromkeys(MODELS, 1.0), "llama-3-8b": 1.2},
    {"tensorrt-llm": 1_000.0, "vllm": 3_000.0, "sglang": 6_000.0},
    {"tensorrt-llm": 200.0, "vllm": 400.0, "sglang": 600.0},
)


def test_the_papers_table_has_every_system_and_three_models():
    assert {name for _, name in PAPER} == set(SYSTEMS)
    assert len(PAPER) == 12
    assert PAPER["qwen-3-32b", BLINK] == (9481.3, 113.4, 2.00)


@pytest.mark.soak
def test_a_table_made_by_known_figures_gives_them_back(soak):
    if not soak:
        pytest.skip("a whole fit, half a minute: --soak")
    table = {("llama-3-8b", name): evaluated(name, "llama-3-8b", MADE, LOOPS, seeds=(1,)).figures for name in SYSTEMS}
    found = Fit(table, LOOPS, seeds=(1,)).best()
    assert found.engine_time["llama-3-8b"] == pytest.approx(1.2, rel=0.01)
    for shape in SHAPES:
        assert found.step_us[shape] == pytest.approx(MADE.step_us[shape], rel=0.25)
        assert found.visit_ns[shape] == pytest.approx(MADE.visit_ns[shape], rel=0.25)
    assert found.engine_time["phi-4-15b"] == pytest.approx(found.engine_time["llama-3-8b"])


def test_the_shipped_figures_are_complete_and_count_at_most_two_a_system_and_one_a_model():
    fitted = fitted_of(LOOPS)
    assert set(fitted.engine_time) == set(MODELS)
    assert set(fitted.step_us) == set(fitted.visit_ns) == set(SHAPES)
    assert set(LOOPS.orchestration.values()) == {1.0}
    with pytest.raises(ValueError, match="no engine_time for phi-4-15b"):
        fitted_of(msgspec.structs.replace(LOOPS, engine_time={m: 1.0 for m in MODELS if m != "phi-4-15b"}))


def test_a_token_costs_the_host_what_it_visits_of_the_model():
    fitted = fitted_of(LOOPS)
    work = {model: system_of("vllm", model, fitted, LOOPS).driver.serial_a_lane for model in MODELS}
    visits = {"llama-3-8b": 32, "phi-4-15b": 40, "qwen-3-32b": 64, "qwen-3-30b-a3b": 384}
    assert work == {model: round(fitted.visit_ns["vllm"] * visits[model]) for model in MODELS}
    assert system_of(BLINK, "qwen-3-30b-a3b", fitted, LOOPS).driver.serial_a_lane == 0


def test_a_figure_far_away_counts_little_more_than_one_further_away():
    assert distance((1.0,), (1.0,)) == 0
    assert distance((2.0,), (1.0,)) == pytest.approx(distance((0.5,), (1.0,)))
    near = distance((1.2,), (1.0,)) - distance((1.1,), (1.0,))
    far = distance((8.8,), (1.0,)) - distance((8.0,), (1.0,))
    assert 0 < far < near / 2


@pytest.mark.parametrize("at", [1.0, 7.3, 4_000.0])
def test_least_finds_the_bottom_of_a_bowl(at):
    assert least(lambda value: math.log(value / at) ** 2, 0.9, 5_000.0, rounds=6) == pytest.approx(at, rel=0.02)
