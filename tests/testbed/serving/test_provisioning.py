from __future__ import annotations

import pytest

from testbed.blink.parameters import BlinkParameters
from testbed.serving.models import MODELS
from testbed.serving.provisioning import DoesNotFit, provision


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_fits_the_card_of_the_evaluation(model: str) -> None:
    facts = provision(BlinkParameters(model=model))
    assert facts.model == model
    assert facts.weights_bytes == MODELS[model].weights_bytes
    assert facts.graphs == BlinkParameters(model=model).graphs().count
    assert facts.kv_blocks > 0


def test_qwen_3_32b_has_about_80_thousand_tokens_of_kv() -> None:
    """design/serving.md 5.2."""
    parameters = BlinkParameters(model="qwen-3-32b")
    assert 70_000 < provision(parameters).kv_blocks * parameters.kv_block_tokens < 85_000


def test_a_model_that_does_not_fit_says_what_it_needs() -> None:
    with pytest.raises(DoesNotFit, match=r"qwen-3-32b needs [\d,]+ bytes of HBM before the first KV block"):
        provision(BlinkParameters(model="qwen-3-32b", hbm_bytes=70_000_000_000))


def test_a_pool_larger_than_hbm_is_refused_and_a_smaller_one_is_taken() -> None:
    assert provision(BlinkParameters(kv_blocks=10)).kv_blocks == 10
    with pytest.raises(DoesNotFit):
        provision(BlinkParameters(kv_blocks=10_000_000))
