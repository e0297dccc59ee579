"""PCIe links between processes of two nodes: who connects to whom, deep folders, strangers, who never comes."""

from __future__ import annotations

import os
import socket

import pytest

from emulators.machine_links import MachineLinks
from emulators.node import NodeRun
from emulators.pcie_link import PcieFault, PcieJoining
from testbed.experiment.plan import NodePlan, Plan, write_plan
from testbed.machine import Deliver, MachineError
from testbed.serving.device_messages import StepDone

PROCESSES = (("api",), ("core", "worker"))


class Taker:
    """Keeps what it is told."""

    def __init__(self, name):
        self.name, self.taken = name, []

    def deadline(self):
        return None

    def wake(self, now):
        return ()

    def receive(self, now, message):
        self.taken.append(message)
        return ()


@pytest.fixture
def folder(tmp_path):
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    (deep / "control").mkdir(parents=True)
    made = Plan(
        run="20260101-000000-abcdef", label="abcdef", clock="wall", system="s", kind="k", seed=1, dilation=1.0,
        byte_scale=1, path_mtu=4096, fabrics=(), parameters={}, workload={},
        nodes=(
            NodePlan("host0", "host", "host", 64, attached=("gpu0",), processes=PROCESSES),
            NodePlan("gpu0", "gpu", "hardware", 64, attached=("host0",)),
            NodePlan("alone0", "gpu", "hardware", 64),
        ),
    )  # fmt: skip
    (deep / "plan.json").write_bytes(write_plan(made))
    return deep


class End:
    """One process with its links."""

    def __init__(self, folder, node, process, machines):
        self.run = NodeRun(folder, node, process)
        self.links = MachineLinks(self.run)
        self.joining = PcieJoining(self.run, self.links)
        self.takers = {name: Taker(name) for name in machines}
        self.run.attach(self.takers.values(), outside=self.links.carry)

    def close(self):
        self.joining.close()
        self.links.close()
        self.run.finish(0)


@pytest.fixture
def start(folder):
    made = []

    def begin(node, process="", machines=()):
        made.append(End(folder, node, process, machines))
        return made[-1]

    yield begin
    for end in made:
        end.close()


def test_every_process_reaches_the_device_and_the_device_the_one_that_has_the_machine(start, folder):
    api, core = start("host0", "", ("api",)), start("host0", "core", ("core", "worker"))
    assert not api.joining.attempt(), "the device is not there yet"
    gpu = start("gpu0", "", ("device",))
    ends = (api, core, gpu)
    for _ in range(3):
        done = [end.joining.attempt() for end in ends]
    assert all(done)
    assert list(folder.glob("control/*.pcie")) == []
    core.links.carry(0, Deliver("gpu0/device", StepDone(1, (5,))))
    api.links.carry(0, Deliver("gpu0/device", StepDone(2, ())))
    gpu.links.attend()
    assert sorted(message.launch for message in gpu.takers["device"].taken) == [1, 2]
    gpu.links.carry(0, Deliver("host0/worker", StepDone(3, (7,))))
    for end in ends:
        end.links.attend()
    assert core.takers["worker"].taken == [StepDone(3, (7,))]
    assert (core.takers["core"].taken, api.takers["api"].taken) == ([], [])


def test_a_node_that_is_attached_to_nothing_waits_for_nothing(start):
    alone = start("alone0")
    assert alone.joining.wait(0.0)
    with pytest.raises(MachineError, match="knows no way to 'gpu0/device'"):
        alone.links.carry(0, Deliver("gpu0/device", StepDone(1, ())))


def test_who_never_comes_is_named(start):
    with pytest.raises(PcieFault, match=r"no PCIe link to host0, host0-core after 0\.05 s"):
        (gpu := start("gpu0")).joining.wait(0.05)
    gpu.joining.close()
    with pytest.raises(PcieFault, match="no PCIe link to gpu0"):
        start("host0").joining.wait(0.05)


def test_waiting_ends_with_the_run(start, folder):
    gpu = start("gpu0")
    (folder / "control" / "stop").touch()
    assert not gpu.joining.wait()


@pytest.mark.parametrize("name", ["host7", "gpu0"])
def test_a_stranger_is_refused_by_name(start, folder, name):
    gpu = start("gpu0")
    fd = os.open(folder / "control", os.O_PATH)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(f"/proc/self/fd/{fd}/gpu0.pcie")
        stranger.sendall(name.encode().ljust(128, b"\0"))
        with pytest.raises(PcieFault, match=f"'{name}' has connected to gpu0"):
            gpu.joining.attempt()
    os.close(fd)
