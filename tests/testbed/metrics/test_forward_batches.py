from __future__ import annotations

from testbed.events.kv_events import BufferMeasured, EngineMeasured, ForwardFinished
from testbed.metrics.fold import Folding
from testbed.metrics.forward_batches import BatchFold, BatchState
from testbed.units import MILLISECOND as MS
from tests.testbed.metrics.stories import Story


def test_batches_rooms_and_engines_keep_sums_and_peaks() -> None:
    story = Story()
    for t, tokens, hbm in ((10, 100, 7), (30, 50, 9), (40, 10, 8)):
        batch = ForwardFinished(0, "prefill", ("a", "b"), tokens, 1_000, (t - 8) * MS, tokens, 4 * MS, hbm, verified=6)
        story.at(t, "pe0", batch)
    story.at(50, "de0", ForwardFinished(1, "decode", ("a",), 1, 9, 48 * MS, 0, MS, 3))
    for t, held, waiting in ((1, 5, 0), (2, 9, 4), (3, 2, 1)):
        story.at(t, "pe0", BufferMeasured("buffer", held, 20, waiting), EngineMeasured(1, 10 * MS, 3 * MS, 2, 40))
    found: BatchState = Folding({"b": BatchFold()}).take_all(story.records()).result("b")
    prefill = found.batches["prefill"]
    assert (prefill.tokens.n, prefill.tokens.total, prefill.turns.total, prefill.cached) == (3, 160, 6, 3_000)
    assert (prefill.time, prefill.computed, prefill.longest_attention) == (24 * MS, 12 * MS, 100)
    assert (prefill.hbm_peak, prefill.verified) == (9, 18)
    assert found.batches["decode"].time == 2 * MS
    room = found.rooms["pe0.buffer"]
    assert (room.peak, room.total, room.waiting) == (9, 20, 4)
    engine = found.engines["pe0.1"]
    assert (engine.interval, engine.busy, engine.tokens) == (30 * MS, 9 * MS, 120)
