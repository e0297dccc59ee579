"""Whole runs with a real part in them: an accelerator in a process of its own, and ports that are not ours."""

import json
import secrets
from pathlib import Path
from statistics import median

import pytest
import whole_run

from testbed.events.ordering import merge
from testbed.metrics.fidelity import FidelityFold
from testbed.metrics.fold import Folding
from tests.topologies.outside import Outside
from tests.topologies.registered import registered
from topologies import storage_image
from topologies.programs import run

pytestmark = pytest.mark.root
SMALL_DEVICE = '["{python}", "-m", "emulators.numpy_device", "--socket", "{socket}", "--hidden", "128", "--layers=2"]'


@pytest.mark.parametrize("kind", ["namespace", pytest.param("docker", marks=pytest.mark.docker)])
def test_the_accelerator_is_a_second_process(prepare_run, start_bench, kind):
    """Graphs take as long as the process measures, and the run says so."""
    folder = prepare_run("small.toml", f"nodes={kind}", f"hardware.accelerators.gpu0.command={SMALL_DEVICE}")
    bench = start_bench(folder)
    assert bench.end() == 0, bench.said()
    assert len(whole_run.events_of(folder, "request.finished")) == 8
    assert not whole_run.events_of(folder, "device.faulted")
    ((node, engaged),) = whole_run.events_of(folder, "hardware.engaged")
    assert (node, engaged.seam, engaged.place) == ("gpu0", "accelerator", "gpu0")
    assert "times of graphs are measured on numpy on this host's CPU" in engaged.facts
    notes = json.loads((folder / "plan.json").read_text())["notes"]
    assert any(note.startswith("gpu0's graphs are computed by a process") for note in notes)
    records = whole_run.records(folder, "gpu0")
    launched = {record.event.launch: record for record in records if whole_run.tag(record) == "graph.launched"}
    sampled = {record.event.launch: record.t for record in records if whole_run.tag(record) == "tokens.sampled"}
    assert set(launched) == set(sampled)
    decode = [sampled[launch] - record.t for launch, record in launched.items() if record.event.kind == "decode"]
    # A step of Llama-3 8B is modelled as 6 ms and more; this transformer of two layers is done long before.
    assert 0 < median(decode) < 4_000_000, decode


def test_an_accelerator_that_dies_ends_the_run_and_is_named(prepare_run, start_bench, tmp_path):
    device = tmp_path / "device.py"
    device.write_text(
        "import sys\nfrom emulators import numpy_device as n\n"
        "run, count = n.Transformer.run, []\n"
        "def die(self, work):\n    count.append(1)\n    return sys.exit(9) if len(count) > 12 else run(self, work)\n"
        "n.Transformer.run = die\nsys.exit(n.main(sys.argv[1:]))\n"
    )
    command = f'["{{python}}", "{device}", "--socket", "{{socket}}", "--hidden", "64"]'
    folder = prepare_run("small.toml", "nodes=namespace", f"hardware.accelerators.gpu0.command={command}")
    bench = start_bench(folder)
    assert bench.end() != 0
    result = json.loads((folder / "control" / "bench.json").read_text())
    assert result["outcome"] == "errored"
    assert "accelerator gpu0 ended with 9" in result["detail"] or "the accelerator at" in result["detail"], result
    assert result["teardown"] == ""


@pytest.fixture
def disk(tmp_path):
    """A file system that a user has mounted: a loop mount stands for an NVMe disk."""
    with registered(tmp_path) as other:
        point = storage_image.mount_image(other, "disk", 256 << 20, tmp_path)
        (point / "precious").write_text("the user's")
        yield point
        storage_image.unmount(point)


@pytest.mark.skipif(bool(storage_image.lacking()), reason=f"no loop mounts here: {storage_image.lacking()}")
@pytest.mark.parametrize("kind", ["namespace", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_storage_node_keeps_its_chunks_on_a_mounted_target(prepare_run, start_bench, disk, kind):
    """storage0 on the user's disk, storage1 on the run's own image: every block arrives whole, nothing is left."""
    folder = prepare_run(
        "../dualpath/small.toml", f"nodes={kind}", f'hardware.storage.storage0.path="{disk}"',
        "workload.trajectories.agents=2", "workload.trajectories.turns=3",
    )  # fmt: skip
    bench = start_bench(folder)
    bench.wait_for("start.json")
    (chunks,) = (path for path in disk.iterdir() if path.name.startswith("looplane-"))
    assert chunks.name.endswith("-storage0")
    assert bench.end() == 0, bench.said()
    ((node, engaged),) = whole_run.events_of(folder, "hardware.engaged")
    assert (node, engaged.seam, engaged.place, engaged.device) == ("storage0", "storage", "storage0", str(disk))
    assert engaged.facts[0].startswith("file system ext")
    assert json.loads((folder / "control" / "bench.json").read_text())["outcome"] == "completed"
    assert len(whole_run.events_of(folder, "request.finished")) == 6
    served = [node for node, _ in whole_run.events_of(folder, "chunk.served")]
    assert served.count("storage0") > 10
    assert {path.name for path in disk.iterdir()} == {"precious", "lost+found"}
    assert f"storage storage0 is {disk}" in judged_note(folder)


def judged_note(folder: Path) -> str:
    """What stands beside the verdict in report, console and API."""
    found = Folding({"f": FidelityFold()}).take_all(merge(folder / "events")).result("f")
    return found.note


@pytest.fixture
def outside():
    made = Outside(secrets.token_hex(3))
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["namespace", pytest.param("docker", marks=pytest.mark.docker)])
def test_the_gpus_port_is_a_foreign_one(prepare_run, outside, start_bench, kind):
    """gpu0 hangs at a switch outside; the DPU reaches its ring over a real port there and back, step by step."""
    port, uplink = outside.card(), outside.card()
    before = [run(["ip", "-o", "link", "show", "dev", card]) for card in (port, uplink)]
    folder = prepare_run(
        "small.toml", f"nodes={kind}", f'hardware.ports."gpu0.cnic0".interface="{port}"',
        f'hardware.uplinks.compute.interface="{uplink}"',
    )  # fmt: skip
    bench = start_bench(folder)
    assert bench.end() == 0, bench.said()
    assert len(whole_run.events_of(folder, "request.finished")) == 8
    assert set(map(tuple, whole_run.steps_of_requests(folder).values())) == {tuple(range(1, 14))}
    engaged = [event for _, event in whole_run.events_of(folder, "hardware.engaged")]
    assert [(event.seam, event.place, event.device) for event in engaged] == [
        ("port", "gpu0.cnic0", port), ("uplink", "compute", uplink)]  # fmt: skip
    assert all("driver veth" in event.facts for event in engaged)
    links = [event for _, event in whole_run.events_of(folder, "link.measured") if event.lane == -1]
    carried = {name: sum(event.packets for event in links if event.port == name) for name in
               ("compute.uplink", "dpu0.cnic0")}  # fmt: skip
    assert min(carried.values()) > 100, carried
    assert "gpu0.cnic0" not in {event.port for event in links}, "the far switch is not ours to read"
    after = [run(["ip", "-o", "link", "show", "dev", card]) for card in (port, uplink)]
    assert [line.split(":", 1)[1].split("qdisc")[0] for line in after] == [
        line.split(":", 1)[1].split("qdisc")[0] for line in before]  # fmt: skip


def test_a_host_without_the_card_cannot_and_says_which(prepare_run, start_bench):
    folder = prepare_run(
        "small.toml", "nodes=namespace", 'hardware.ports."gpu0.cnic0".interface="nosuch0"',
        'hardware.uplinks.compute.interface="nosuch1"',
    )  # fmt: skip
    bench = start_bench(folder)
    assert bench.end() == 3, bench.said()
    lines = [line for line in bench.said().splitlines() if "this host cannot" in line]
    assert len(lines) == 2
    assert 'hardware.ports."gpu0.cnic0": "nosuch0": there is no such interface on this host' in lines[0]
    assert not (folder / "events").exists() or not list((folder / "events").iterdir()), "nothing was begun"
