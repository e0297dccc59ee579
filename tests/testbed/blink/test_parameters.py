from __future__ import annotations

import ast
import inspect
from typing import Any

import msgspec
import pytest

from testbed.blink import parameters as module
from testbed.blink.parameters import BlinkParameters
from testbed.serving.models import MODELS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": "gpt-2"}, "model 'gpt-2' is none of llama-3-8b, phi-4-15b"),
        ({"model": 3}, "Expected `str`, got `int` - at `$.model`"),
        ({"slot": 5}, "unknown field `slot`"),
        ({"slots": 0}, "slots must be at least 1, not 0"),
        ({"slots": 1 << 21, "max_batch": 1}, "slots must be 1 to"),
        ({"slots": "many"}, "$.slots"),
        ({"max_batch": 0}, "max_batch must be at least 1"),
        ({"max_batch": 16_385}, "max_batch must be at most 16384"),
        ({"max_batch": 5_000}, "max_batch 5000 is more than the ring's 4096 slots"),
        ({"context_tokens": 1}, "context_tokens 1 is not between 2 and llama-3-8b's 8192"),
        ({"context_tokens": 9_000}, "context_tokens 9000"),
        ({"kv_blocks": 0}, "kv_blocks must be at least 1"),
        ({"input_arena_tokens": 100}, "input_tokens must be a positive multiple of 16"),
        ({"poll_interval_min": 0}, "poll_interval_min must be at least 1"),
        ({"poll_interval_min": 2_000_000}, "must ascend"),
        ({"scan_cost": -1}, "scan_cost"),
        ({"tail_launch_cost": -1}, "tail_launch_cost must not be negative"),
        ({"service_level": 16}, "service_level must be 0 to 15"),
        ({"window": 1}, "window must be at least 2"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, BlinkParameters)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_are_valid_and_survive_a_round_trip() -> None:
    assert msgspec.json.decode(msgspec.json.encode(BlinkParameters()), type=BlinkParameters) == BlinkParameters()


def test_every_field_says_what_it_is_and_where_its_default_comes_from() -> None:
    (cls,) = [
        node for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ClassDef) and node.name == "BlinkParameters"
    ]  # fmt: skip
    for node, after in zip(cls.body, cls.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            assert said, f"{node.target.id} has no docstring"


def test_the_ring_of_the_paper() -> None:
    layout = BlinkParameters().layout()
    assert layout.slots == 4_096
    assert layout.metadata_size == 64 * 1024


@pytest.mark.parametrize("model", sorted(MODELS))
def test_the_graph_grid_is_as_dense_as_the_summary_says(model: str) -> None:
    """650 to 1,000 graphs of 2 to 3 MB, 2 to 4 GB together; the longest contexts need a few more."""
    graphs = BlinkParameters(model=model).graphs()
    assert 650 <= graphs.count <= 1_050
    assert 1.5e9 <= graphs.bytes <= 4e9
    assert graphs.decode.largest in graphs
