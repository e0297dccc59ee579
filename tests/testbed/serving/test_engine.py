from __future__ import annotations

from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Engine, Lane, step_time
from testbed.serving.graph_cache import DECODE, PREFILL, Graph
from testbed.serving.text_model import TextModel
from testbed.serving.tokens import ByteVocabulary

COST = CostModel(read_profile("llama-3-8b.toml"))
ENGINE = Engine(COST, TextModel("hen\nher\nhex\nhem\n", ByteVocabulary()))


def lane(request: int, *, place: int = 0, context: int = 100, seed: int = 1) -> Lane:
    return Lane(request, place, context, (ord("h"), ord("e")), 1.0, 1.0, seed, True)


def test_a_prefill_costs_its_whole_captured_shape() -> None:
    assert ENGINE.step_time(Graph(PREFILL, 1, 512), [lane(1)]) == COST.prefill(512)


def test_unused_lanes_cost_their_place_but_read_no_kv() -> None:
    graph = Graph(DECODE, 8, 2_048)
    two, eight = [lane(n, context=1_500) for n in range(2)], [lane(n, context=1_500) for n in range(8)]
    assert COST.decode(8, 3_000).duration == ENGINE.step_time(graph, two).duration
    assert ENGINE.step_time(graph, two).duration < ENGINE.step_time(graph, eight).duration
    assert ENGINE.step_time(graph, two).duration > COST.decode(2, 3_000).duration


def test_prompts_in_one_prefill_follow_each_other_and_say_that_no_table_has_that() -> None:
    one, four = step_time(COST, Graph(PREFILL, 1, 512), 512), step_time(COST, Graph(PREFILL, 4, 512), 2_048)
    assert four.duration == 4 * one.duration
    assert four.extrapolated


def test_a_lane_draws_the_same_token_in_any_company() -> None:
    lanes = [lane(number, place=number, seed=number * 7) for number in range(6)]
    together = ENGINE.sample(lanes)
    assert together == tuple(ENGINE.sample([one])[0] for one in lanes)
    assert tuple(reversed(together)) == ENGINE.sample(lanes[::-1])


def test_seed_and_place_matter() -> None:
    drawn = {ENGINE.sample([lane(1, place=place, seed=seed)])[0] for place in range(20) for seed in range(5)}
    assert len(drawn) > 1
