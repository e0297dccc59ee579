from __future__ import annotations

import pytest

from testbed.serving.models import MODELS


@pytest.mark.parametrize(
    ("name", "kv_bytes"), [("llama-3-8b", 131_072), ("qwen-3-32b", 262_144), ("qwen-3-30b-a3b", 98_304)]
)
def test_kv_bytes_are_those_of_the_design_page(name: str, kv_bytes: int) -> None:
    """design/serving.md 5.5."""
    assert MODELS[name].kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_row_is_named_like_its_model_and_weighs_two_bytes_a_parameter(name: str) -> None:
    model = MODELS[name]
    assert model.name == name
    assert model.weights_bytes == 2 * model.parameters
