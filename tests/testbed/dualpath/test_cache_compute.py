from __future__ import annotations

import pytest

from testbed.dualpath.cache_compute import CACHED_MODELS, gbyte_per_pflop
from testbed.serving.agentic_models import AGENTIC_MODELS

APPEND = 429
PAPER = {
    "qwen-2.5-32b": (117, 267, 0.03),
    "gpt-oss-120b": (47, 95, 0.03),
    "qwen-3-235b-a22b": (39, 60, 0.03),
    # Design 1.9, check 2: 12.2-35.1 with 656 bytes a layer against 13-36.
    "deepseek-v3.2": (13, 36, 0.07),
    # The one row that is not reproduced: its attention is counted in MLA's absorbed form, 10 to 12 % too much.
    "deepseek-v3": (4.8, 5.8, 0.12),
}
"""Table 1, append 429, 16K and 64K of context, and the tolerance that we state."""


@pytest.mark.parametrize("name", PAPER)
def test_table_1_within_the_stated_tolerance(name: str) -> None:
    low, high, tolerance = PAPER[name]
    assert float(gbyte_per_pflop(CACHED_MODELS[name], 16_384, APPEND)) == pytest.approx(low, rel=tolerance)
    assert float(gbyte_per_pflop(CACHED_MODELS[name], 65_536, APPEND)) == pytest.approx(high, rel=tolerance)


def test_every_row_of_table_1_has_a_model() -> None:
    assert set(PAPER) == set(CACHED_MODELS)


def test_the_text_gives_22_at_the_traces_average() -> None:
    assert float(gbyte_per_pflop(CACHED_MODELS["deepseek-v3.2"], 32_721, APPEND)) == pytest.approx(22, rel=0.03)


@pytest.mark.parametrize(("cached", "served"), [("qwen-2.5-32b", "qwen-2.5-32b"), ("deepseek-v3.2", "ds-660b")])
def test_models_that_are_served_have_the_same_bytes_and_weights_here(cached: str, served: str) -> None:
    ours, theirs = CACHED_MODELS[cached], AGENTIC_MODELS[served]
    assert (ours.token_bytes, ours.active_parameters) == (theirs.token_bytes, theirs.active_parameters)
