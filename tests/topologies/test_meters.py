"""What the kernel's counters of a port say, as events."""

from __future__ import annotations

import time

import pytest
from lane_traffic import FRAME, Build, flood, to_gpu

from topologies import lane_queues, lanes
from topologies.meters import LinkMeter

pytestmark = pytest.mark.root


def test_a_queue_that_is_made_anew_takes_nothing_back(build: Build) -> None:
    """Its counters begin at 0 again; counted on from the old ones, what was dropped or carried before would vanish."""
    fabric = build()
    port = to_gpu(fabric)
    queues = lane_queues.queues_of(port)
    lanes.apply(port, queues)
    meter = LinkMeter(fabric.plan, [port])
    flood(fabric, {0: FRAME}, 100)
    time.sleep(0.1)  # 100 frames take the port 33 ms
    carried = {event.lane: event.packets for event in meter.measure()}
    assert carried[0] > 0
    lanes.apply(port, queues)
    after = [(event.lane, event.bytes, event.packets, event.drops) for event in meter.measure()]
    assert {lane for lane, *_ in after} == set(carried)
    assert all(min(counts) >= 0 for _, *counts in after), after
    meter.close()
