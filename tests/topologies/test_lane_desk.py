"""Lane tables of a live run: shown, changed, refused; and the run that goes on after it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import bench_plans
import msgspec
import pytest
from bench_tree import BenchTree, finish, result, wait_for
from lane_traffic import Build

from testbed.events.fidelity_events import HostChanged, LanesApplied
from testbed.events.log import read_log
from testbed.events.run_events import LineLogged
from testbed.experiment.live_lanes import read_tables
from testbed.network.lanes import LaneTable
from topologies.lane_desk import ANSWER, ASK, Ask, LaneDesk
from topologies.lane_queues import queues_of
from topologies.lanes import apply, check
from topologies.namespaces import network_of
from topologies.programs import run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


def lanes(tree: BenchTree, folder: Path, *words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "topologies.lane_desk", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_live_runs_tables_are_shown_changed_and_checked(tmp_path: Path, label: str) -> None:
    tree = BenchTree(tmp_path)
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}))
    process = tree.start("run", folder, "--nodes", "namespace", "--serve")
    try:
        wait_for(folder / "control" / "start.json", process)
        code, out, err = lanes(tree, folder)
        assert code == 0, err
        assert [line.split(":")[0] for line in out.splitlines()] == ["dpu0.cnic0", "gpu0.cnic0"]
        assert "vlarb_high=0:192,1:192,2:0,3:192" in out
        code, out, err = lanes(tree, folder, "--port", "gpu0.cnic0", "--max-vls=2", "--vlarb-high=1:64",
                               "--vlarb-low=0:64", "--sl2vl=1,0")  # fmt: skip
        assert code == 0, err
        assert [line.split()[0] for line in out.splitlines()[1:]] == ["link", "vl0", "vl1"]
        for words, message in [
            (["--port", "gpu0.none"], "no port 'gpu0.none' with lanes; there are dpu0.cnic0, gpu0.cnic0"),
            (["--high-limit=300"], "high_limit is 300; allowed is 0 to 255"),
            (["--sl2vl=3"], "sl2vl"),
        ]:
            code, _, err = lanes(tree, folder, *words)
            assert (code, len(err.splitlines())) == (2, 1), err
            assert message in err
        assert "high_limit=240" in lanes(tree, folder, "--port", "dpu0.cnic0")[1]
    finally:
        code, err = finish(process)
    assert code == 0, err
    assert result(folder)["outcome"] == "completed"  # the final comparison is with the changed table
    told = [record.event for record in read_log(folder / "events" / "bench.jsonl")]
    applied = [len(event.classes) for event in told if isinstance(event, LanesApplied) and event.port == "gpu0.cnic0"]
    assert applied == [5, 3]
    texts = [event.text for event in told if isinstance(event, LineLogged)]
    assert any(text.startswith("lanes of gpu0.cnic0 changed as asked: max_vls=2") for text in texts)
    code, _, err = lanes(tree, folder)
    assert code == 2
    assert err == f"{folder}: the run is not live\n"


def test_a_nic_that_takes_no_tables_has_the_change_taken_back(tmp_path: Path, label: str) -> None:
    """All ports or none: both ports' queues and the other NIC's table are as they were, and the line names the NIC."""
    tree = BenchTree(tmp_path)
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless", "deaf nic": "gpu0"}))
    process = tree.start("run", folder, "--nodes", "namespace", "--serve")
    try:
        wait_for(folder / "control" / "start.json", process)
        code, out, err = lanes(tree, folder, "--high-limit=10")
        assert (code, err) == (2, "the soft RNIC of gpu0 has not taken its table\n")
        assert out.count("high_limit=240") == 2
        assert not (folder / "control" / "gpu0.lanes.json").exists()
        seen = [read_tables((folder / "control" / f"dpu0.lanes.seen{turn}").read_bytes()) for turn in range(2)]
        assert [tables["cnic0"].high_limit for tables in seen] == [10, 240]
        code, _, err = lanes(tree, folder, "--port", "dpu0.cnic0", "--high-limit=10")
        assert code == 0, err
    finally:
        code, err = finish(process)
    assert code == 0, err
    assert result(folder)["outcome"] == "completed"
    told = [record.event for record in read_log(folder / "events" / "bench.jsonl")]
    assert [event for event in told if isinstance(event, HostChanged)] == [], "queues are as the bench thinks they are"
    applied = [event.port for event in told if isinstance(event, LanesApplied)]
    assert applied[-1] == "dpu0.cnic0"
    assert len(applied) == 5, "four ports at the start, and one change"


def test_a_port_that_is_refused_has_those_before_it_put_back(build: Build, tmp_path: Path) -> None:
    """The second port's queues are not those of the bench: the first has its old table again, no NIC was told."""
    ports = [port for port in build().ports() if port.fabric.roce]
    queues = {port.name: queues_of(port) for port in ports}
    for port in ports:
        apply(port, queues[port.name])
    told, said = list[object](), list[str]()

    def at_nics(tables: Mapping[str, Mapping[str, LaneTable]]) -> list[str]:
        told.append(tables)
        return []

    desk = LaneDesk(tmp_path, ports, dict(queues), at_nics)
    with network_of(ports[1].pid):
        run(["tc", "qdisc", "del", "dev", ports[1].device, "root"])
    (tmp_path / ASK).write_bytes(msgspec.json.encode(Ask(1, (), {"high_limit": 10})))
    assert list(desk.look(said.append)) == []
    answer = json.loads((tmp_path / ANSWER).read_text())
    assert answer["fault"].startswith(f"{ports[1].name}: the root is ")
    assert {table["high_limit"] for table in answer["tables"].values()} == {240}
    check(ports[0], queues[ports[0].name])
    assert told == []


def test_nonsense_in_the_folder_is_said_and_changes_nothing(tmp_path: Path) -> None:
    desk, said = LaneDesk(tmp_path, [], {}, lambda _tables: []), list[str]()
    assert list(desk.look(said.append)) == []
    (tmp_path / ASK).write_text("{")
    assert list(desk.look(said.append)) == []
    assert said[0].startswith(f"control/{ASK}: ")
    assert not (tmp_path / ASK).exists()
    (tmp_path / ASK).write_text(json.dumps({"number": 7, "ports": ["x"], "changes": {}}))
    assert list(desk.look(said.append)) == []
    assert json.loads((tmp_path / ANSWER).read_text())["fault"].startswith("no port 'x'")
    assert said[1].startswith("lanes not changed as asked: no port 'x'")
    assert Ask(1, (), {}).changes == {}
    assert LaneTable().frames() == {}
