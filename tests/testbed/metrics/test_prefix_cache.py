"""What a resident scheduler's prefix cache found, of events by hand and of a scheduler under the manual clock."""

from __future__ import annotations

from testbed.events.log import Record
from testbed.events.prefix_events import PrefixReused
from testbed.experiment.prefix_figures import prefix_figures, prefix_lines
from testbed.metrics.fold import Folding
from testbed.metrics.prefix_cache import PrefixFold, PrefixState
from tests.testbed.blink.world import World, small
from tests.testbed.metrics.stories import lookups, small_run


def fold(records: list[Record]) -> PrefixState:
    found: PrefixState = Folding({"prefixes": PrefixFold()}).take_all(records).result("prefixes")
    return found


def test_the_hit_rate_is_of_tokens_and_repeats_are_added() -> None:
    found = fold(lookups().records())
    figures = prefix_figures([found, found])
    assert figures is not None
    assert (figures.prompts, figures.hits) == (8, 6)
    assert (figures.cached_tokens, figures.prompt_tokens) == (192, 600)
    assert figures.hit_rate == 0.32
    assert figures.evicted_blocks == 12
    assert list(prefix_lines(figures)) == [
        ("prefixes", "32.0 % of 600 prompt tokens found (192), in 6 of 8 prompts; 12 blocks made room")
    ]


def test_a_scheduler_that_took_over_counts_its_evictions_anew() -> None:
    assert fold(lookups().at(5, "gpu0", PrefixReused(5, 10, 0, 0, 1)).records()).evicted_blocks == 5 + 1 + 1


def test_without_a_prefix_cache_there_is_no_figure() -> None:
    assert prefix_figures([fold(small_run())]) is None
    assert list(prefix_lines(None)) == []


def test_a_scheduler_under_the_manual_clock_computes_no_common_beginning_twice() -> None:
    """116 tokens are common to all: 7 whole blocks of 16, which the first prompt leaves to the other two."""
    world = World(small(prefix_cache=True))
    for name in ("first", "second", "third"):
        world.submit(name, "You are a helpful assistant. " * 4 + name, max_tokens=2)
        world.settle()
    records = [Record(place, "gpu0", place, event) for place, event in enumerate(world.of(PrefixReused))]
    figures = prefix_figures([fold(records)])
    assert figures is not None
    assert (figures.prompts, figures.hits, figures.cached_tokens) == (3, 2, 2 * 112)
    tokens = 3 * 116 + len("firstsecondthird")
    assert figures.prompt_tokens == tokens
    assert figures.hit_rate == round(224 / tokens, 6)
