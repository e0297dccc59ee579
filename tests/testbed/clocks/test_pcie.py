"""PCIe links of a simulation: latency, rate, order, and what does not belong there."""

from __future__ import annotations

import pytest

from testbed.clocks.pcie import ANSWER_BYTES, LANE_BYTES, LAUNCH_BYTES, TOKEN_BYTES, PcieLinks, link_size, split_address
from testbed.machine import MachineError
from testbed.serving.device_messages import LaunchStep, StepDone, StepFailed
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import DECODE, PREFILL, Graph
from testbed.serving.requests import Abandon
from testbed.units import SECOND

LANE = Lane(1, 0, 1000, (1, 2), 1.0, 1.0, 0, ignore_eos=True)


def test_sizes_are_those_of_what_moves() -> None:
    assert link_size(LaunchStep(1, Graph(PREFILL, 1, 1024), (LANE,))) == LAUNCH_BYTES + LANE_BYTES + 1000 * TOKEN_BYTES
    assert link_size(LaunchStep(1, Graph(DECODE, 2, 1024), (LANE, LANE))) == LAUNCH_BYTES + 2 * LANE_BYTES
    assert link_size(StepDone(1, (1, 2, 3))) == ANSWER_BYTES + 3 * TOKEN_BYTES
    assert link_size(StepFailed(1, "code", "detail")) == ANSWER_BYTES
    with pytest.raises(MachineError, match="Abandon"):
        link_size(Abandon("r"))


def test_a_direction_sends_one_after_another_and_the_other_direction_is_free() -> None:
    links = PcieLinks([("host0", "gpu0")], latency=100, rate_bits_per_s=8 * SECOND)  # a byte a nanosecond
    done = StepDone(1, ())
    for launch in (1, 2):
        links.send(1_000, "host0", ("gpu0", "device"), StepDone(launch, ()))
    links.send(1_000, "gpu0", ("host0", "worker"), done)
    assert links.deadline() == 1_000 + ANSWER_BYTES + 100
    first = links.wake(1_000 + ANSWER_BYTES + 100)
    assert sorted(node for node, _, _ in first) == ["gpu0", "host0"]
    assert links.wake(1_000 + 2 * ANSWER_BYTES + 99) == []
    assert links.wake(1_000 + 2 * ANSWER_BYTES + 100) == [("gpu0", "device", StepDone(2, ()))]
    assert links.deadline() is None


def test_only_attached_nodes_can_be_reached() -> None:
    links = PcieLinks([("host0", "gpu0")])
    with pytest.raises(MachineError, match="host0 has a message for gpu1/device, and no PCIe link leads there"):
        links.send(0, "host0", ("gpu1", "device"), StepDone(1, ()))


def test_an_address_of_another_node_has_a_slash() -> None:
    assert split_address("gpu0/device") == ("gpu0", "device")
    assert split_address("api") is None
