from __future__ import annotations

import pytest

from testbed.events.kv_events import AttentionMeasured
from testbed.metrics.attention import AttentionFold, AttentionState, by_progress, ratio
from testbed.metrics.fold import Folding
from tests.testbed.metrics.stories import Story


def of(story: Story) -> AttentionState:
    found: AttentionState = Folding({"a": AttentionFold()}).take_all(story.records()).result("a")
    return found


def test_a_step_weighs_as_long_as_it_lasts() -> None:
    story = Story().at(1, "pe0", AttentionMeasured(0, (300, 100, 200))).at(2, "pe0", AttentionMeasured(1, (0, 0, 3)))
    assert ratio(of(story).steps) == pytest.approx(303 / (200 + 1))


def test_a_step_without_attention_is_none() -> None:
    assert of(Story().at(1, "pe0", AttentionMeasured(0, (0, 0)), AttentionMeasured(1, ()))).steps == []
    assert ratio([]) is None


def test_progress_goes_from_the_first_step_to_the_last() -> None:
    story = Story()
    for place in range(21):
        # Uneven in the first twentieth, even afterwards.
        story.at(100 + 10 * place, "pe0", AttentionMeasured(place, (30, 10) if place == 0 else (20, 20)))
    parts = by_progress(of(story).steps)
    assert len(parts) == 20
    assert parts[0] == 1.5
    assert set(parts[1:]) == {1.0}


def test_parts_of_the_run_without_a_step_have_no_ratio() -> None:
    story = Story().at(0, "pe0", AttentionMeasured(0, (2, 2))).at(100, "pe0", AttentionMeasured(1, (4, 0)))
    assert by_progress(of(story).steps) == (1.0, *(None,) * 18, 2.0)
    assert by_progress([]) == (None,) * 20
    assert by_progress(of(Story().at(5, "pe0", AttentionMeasured(0, (2, 2)))).steps)[0] == 1.0
