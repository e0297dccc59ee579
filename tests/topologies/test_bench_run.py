"""A whole run by the bench, as a process of its own: how it goes, how it ends, and what it leaves (faults A, G4)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import bench_plans
import host_state
import pytest
from bench_tree import BenchTree, facts, finish, result, wait_for

from testbed.events.fidelity_events import CpuMeasured, LanesApplied, LinkMeasured
from testbed.events.log import check_log, read_log
from testbed.events.run_events import LineLogged, NodeStopped, RunStarted, StageEntered
from topologies import docker_host, images
from topologies.programs import run
from topologies.registry import start_time

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]
KINDS = ["namespace", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture
def tree(tmp_path: Path) -> BenchTree:
    return BenchTree(tmp_path)


def events(folder: Path, node: str = "bench") -> list[object]:
    path = folder / "events" / f"{node}.jsonl"
    check_log(path)
    return [record.event for record in read_log(path)]


def stages(folder: Path) -> list[str]:
    return [event.stage for event in events(folder) if isinstance(event, StageEntered)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_completes(tree: BenchTree, label: str, kind: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"seconds": 1.2}))
    code, _, err = tree.run("run", folder, "--nodes", kind)
    assert code == 0, err
    assert result(folder) == {"outcome": "completed", "detail": "", "teardown": ""}
    assert stages(folder) == ["preparing", "network", "nodes", "running", "finalising", "cleaned"]
    found = events(folder)
    assert sorted(event.port for event in found if isinstance(event, LanesApplied)) == [
        "client0.front0", "dpu0.cnic0", "dpu0.front0", "gpu0.cnic0",
    ]  # fmt: skip
    assert [event for event in found if isinstance(event, RunStarted)]
    assert [event for event in found if isinstance(event, CpuMeasured)]
    lanes = {(event.port, event.lane) for event in found if isinstance(event, LinkMeasured)}
    assert {("gpu0.cnic0", lane) for lane in (-1, 0, 1, 2, 3)} <= lanes
    assert ("dpu0.front0", -1) in lanes
    said = [event.text for event in found if isinstance(event, LineLogged)]
    assert "ending 4 nodes, 2 soft RNICs" in said
    # A link has two ends, a fabric a bridge in a namespace of its own, and a node its own unless it is a container.
    left = {"namespace": "6 namespaces, 0 containers", "docker": "2 namespaces, 4 containers"}
    assert f"removing 10 interfaces, {left[kind]}" in said
    for node in ("client0", "dpu0", "gpu0", "host0"):  # their own software has logged nothing, so the bench does
        assert isinstance(events(folder, node)[-1], NodeStopped)
        assert events(folder, node)[-1].code == 0
        assert "stopped when asked" in (folder / "control" / f"node-{node}.log").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_nodes_software_finds_itself(tree: BenchTree, label: str, kind: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label))
    assert tree.run("run", folder, "--nodes", kind)[0] == 0
    assert facts(folder, "dpu0")["interfaces"] == ["cnic0", "front0", "lo"] or kind == "namespace"
    assert facts(folder, "dpu0")["nic_says"] == "nic of dpu0"
    assert facts(folder, "gpu0")["nic_says"] == "nic of gpu0"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        assert facts(folder, "host0")["cores"] != facts(folder, "gpu0")["cores"]
        assert cores[0] in facts(folder, "client0")["cores"]
    if kind == "docker":
        assert "CapEff:\t0000000000000000" in facts(folder, "dpu0")["status"]
        assert "Read-only file system" in facts(folder, "dpu0")["root"]
        assert "Read-only file system" in facts(folder, "dpu0")["source"]
        assert facts(folder, "dpu0")["pid"] < 1000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("manner", "how"),
    [("crash early", "ended with 7"), ("crash", "ended with 7"), ("die", "ended with 137|killed by SIGKILL")],
)
def test_a_node_that_dies_ends_the_run_with_its_code_and_words(
    tree: BenchTree, label: str, kind: str, manner: str, how: str
) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"dpu0": manner, "seconds": 20}))
    code, _, err = tree.run("run", folder, "--nodes", kind)
    assert code == 4
    assert result(folder)["outcome"] == "errored"
    detail = result(folder)["detail"]
    assert any(words in detail for words in how.split("|")), detail
    assert "node dpu0" in detail
    assert "node-dpu0.log" in detail
    if manner != "die":
        assert "the cause of it all" in detail
        assert "the cause of it all" in err
    assert events(folder, "dpu0")[-1].code not in (0, None)  # type: ignore[attr-defined]
    assert stages(folder)[-2:] == ["finalising", "cleaned"]


@pytest.mark.docker
def test_an_image_whose_containers_end_at_once_fails_the_run_with_their_code_and_words(
    tree: BenchTree, label: str, tmp_path: Path
) -> None:
    with docker_host.engine(label) as docker:
        context = tmp_path / "context"
        context.mkdir()
        script = '#!/bin/sh\n[ "$1" = 0 ] && exit 0\nsleep=/bin/sleep\n$sleep 1.5\necho no time to sleep\nexit 3\n'
        (context / "sleep").write_text(script)
        (context / "sleep").chmod(0o755)
        image = images.ensure(docker, lambda _text: None)
        (context / "Dockerfile").write_text(f"FROM {image}\nCOPY sleep /usr/local/bin/sleep\n")
        name = f"looplane-test-{label}:ends"
        run(["env", "DOCKER_BUILDKIT=0", *docker.command, "build", "--quiet", "--tag", name, str(context)])
        try:
            folder = tree.make(bench_plans.demo_plan(label, parameters={"seconds": 20}))
            code, _, _ = tree.run("run", folder, "--nodes", "docker", environment={"LOOPLANE_IMAGE": name})
            assert code == 4
            detail = result(folder)["detail"]
            assert "has ended with 3: no time to sleep" in detail
            assert result(folder)["teardown"] == ""
        finally:
            docker.run("rmi", "--force", name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_cancel_keeps_what_there_is_and_says_why(tree: BenchTree, label: str, number: int) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}))
    process = tree.start("run", folder, "--nodes", "namespace")
    wait_for(folder / "control" / "start.json", process)
    code, _ = finish(process, number)
    assert code == 4
    assert result(folder)["outcome"] == "cancelled"
    assert result(folder)["detail"] == f"cancelled by {signal.Signals(number).name}"
    assert stages(folder)[-1] == "cleaned"
    assert "stopped when asked" in (folder / "control" / "node-gpu0.log").read_text()


def test_cancel_before_the_barrier(tree: BenchTree, label: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"dpu0": "shy"}))
    process = tree.start("run", folder, "--nodes", "namespace")
    wait_for(folder / "control" / "dpu0.facts", process)
    assert finish(process)[0] == 4
    assert result(folder)["outcome"] == "cancelled"
    assert result(folder)["detail"] == "cancelled by SIGTERM"
    assert not (folder / "control" / "start.json").exists()
    assert "running" not in stages(folder)
    assert stages(folder)[-1] == "cleaned"


def test_the_time_limit_ends_a_run_that_does_not(tree: BenchTree, label: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}, time_limit_s=0.5))
    assert tree.run("run", folder, "--nodes", "namespace")[0] == 4
    assert result(folder)["detail"] == "the time limit of 0.5 s is over"


def test_a_node_that_does_not_listen_is_ended_all_the_same(tree: BenchTree, label: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"gpu0": "deaf"}))
    code, _, err = tree.run("run", folder, "--nodes", "namespace")
    assert code == 0
    assert "node gpu0 did not stop when asked: SIGKILL" in err


@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_of_the_bench_is_cleaned_up_by_the_next_start(tree: BenchTree, label: str, kind: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}))
    process = tree.start("run", folder, "--nodes", kind)
    wait_for(folder / "control" / "start.json", process)
    finish(process, signal.SIGKILL)
    assert Path("/run/looplane", label).exists()
    # The next start of whatever run cleans up; here it is the same folder, tried again.
    plan = bench_plans.demo_plan(label)
    (folder / "plan.json").write_bytes(bench_plans.written(plan))
    code, _, err = tree.run("run", folder, "--nodes", "namespace")
    assert code == 0, err
    assert f"of run {label}" in err
    assert result(folder)["outcome"] == "completed"


def test_another_plan_in_the_same_folder_takes_nothing_of_the_last_attempt(tree: BenchTree, label: str) -> None:
    """Fault A17, after an attempt that has had its barrier opened, events of its own time and a capture."""
    captures = (bench_plans.capture("gpu0", "cnic0"),)
    folder = tree.make(bench_plans.demo_plan(label, parameters={"gpu0": "die", "answers": 2}, captures=captures))
    assert tree.run("run", folder, "--nodes", "namespace")[0] == 4
    first = {path: path.read_bytes() for path in (folder / "events").glob("*.jsonl")}
    assert max(record.t for record in read_log(folder / "events" / "bench.jsonl")) > 0
    before = time.time()
    (folder / "plan.json").write_bytes(bench_plans.written(bench_plans.demo_plan(label, parameters={"seconds": 0.5})))
    code, _, err = tree.run("run", folder, "--nodes", "namespace")
    assert code == 0, err
    assert result(folder) == {"outcome": "completed", "detail": "", "teardown": ""}
    assert stages(folder) == ["preparing", "network", "nodes", "running", "finalising", "cleaned"]
    assert not any(isinstance(event, NodeStopped) and event.code for event in events(folder, "gpu0"))
    assert not (folder / "events" / "client0.jsonl").exists() or not events(folder, "client0")[:-1]
    assert not list((folder / "captures").glob("*"))
    news = [path for part in ("control", "events") for path in (folder / part).iterdir()]
    assert all(path.stat().st_mtime >= before - 0.1 for path in news if path.name != "bench.lock")
    aside = folder / "earlier" / "1"
    assert {folder / path.relative_to(aside): path.read_bytes() for path in aside.glob("events/*.jsonl")} == first
    assert json.loads((aside / "control" / "bench.json").read_text())["outcome"] == "errored"


def test_a_lab_that_was_taken_down_starts_again_with_its_helpers(tree: BenchTree, label: str) -> None:
    """Fault A7: captures are processes beside the nodes; those of the first start are in nobody's way."""
    captures = (bench_plans.capture("gpu0", "cnic0"), bench_plans.capture("dpu0", "cnic0"))
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}, captures=captures))
    process = tree.start("run", folder, "--nodes", "namespace")
    wait_for(folder / "control" / "start.json", process)
    assert finish(process)[0] == 4
    again = bench_plans.demo_plan(label, parameters={"seconds": 0.5}, captures=captures)
    (folder / "plan.json").write_bytes(bench_plans.written(again))
    code, _, err = tree.run("run", folder, "--nodes", "namespace")
    assert code == 0, err
    assert result(folder) == {"outcome": "completed", "detail": "", "teardown": ""}
    assert len(list((folder / "captures").glob("*.pcap"))) == 2


@pytest.mark.docker
def test_kill_9_then_clean(tree: BenchTree, label: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}))
    process = tree.start("run", folder, "--nodes", "docker")
    wait_for(folder / "control" / "start.json", process)
    finish(process, signal.SIGKILL)
    code, out, _ = tree.run("clean", "--dry-run")
    assert code == 0
    assert f"would remove container looplane-{label}-dpu0 of run {label}" in out
    assert host_state.of_label(label)  # a dry run removes nothing
    named = sorted(line.removeprefix("would remove ") for line in out.splitlines() if label in line)
    code, out, _ = tree.run("clean")
    assert code == 0
    assert f"removed container looplane-{label}-dpu0 of run {label}" in out
    assert sorted(line.removeprefix("removed ") for line in out.splitlines() if label in line) == named
    assert result(folder)["outcome"] == "lost"
    assert label not in tree.run("clean")[1]  # once is enough


@pytest.mark.parametrize(
    ("kind", "delays"),
    [
        ("namespace", [0.3, 0.45, 0.6, 0.75, 0.9, 1.2]),
        pytest.param("docker", [0.5, 1.0, 1.6, 2.4], marks=pytest.mark.docker),
    ],
)
def test_kill_9_at_any_moment_of_the_start(
    tree: BenchTree, label: str, kind: str, delays: list[float], tmp_path: Path
) -> None:
    for number, delay in enumerate(delays):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "plan.json").write_bytes(bench_plans.written(bench_plans.demo_plan(label)))
        process = tree.start("run", folder, "--nodes", kind)
        time.sleep(delay)
        finish(process, signal.SIGKILL)
        code, out, err = tree.run("clean")
        assert code == 0, out + err
        assert host_state.of_label(label) == set()


@pytest.mark.parametrize("moment", ["at once", "record", "network", "start.json"])
def test_kill_9_of_whoever_started_the_bench(tree: BenchTree, label: str, moment: str) -> None:
    """It tears down though nobody listens to it any more, from before it could ask the kernel to be told so."""
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}))
    code = (
        "import os, subprocess, sys\n"
        "words = [sys.executable, '-m', 'topologies', 'run', sys.argv[1], '--nodes', 'namespace']\n"
        "bench = subprocess.Popen([*words, '--starter', str(os.getpid())], stdout=subprocess.PIPE,\n"
        "                         stderr=subprocess.STDOUT, start_new_session=True)\n"
        "print(bench.pid, flush=True)\nbench.communicate()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=tree.source, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    with starter.stdout:
        bench = int(starter.stdout.readline())
    seen = {"record": Path("/run/looplane", label, "run.json"), "network": Path("/run/looplane", label, "nodes")}
    if moment != "at once":
        wait_for(seen.get(moment, folder / "control" / moment))
    starter.kill()
    starter.wait()
    wait_for(folder / "control" / "bench.json")
    end = time.monotonic() + 10
    while start_time(bench) is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert result(folder)["detail"] == "cancelled, since the process that started it has ended"
    assert (result(folder)["outcome"], result(folder)["teardown"]) == ("cancelled", "")
    assert stages(folder)[-2:] == ["finalising", "cleaned"]
    assert host_state.of_label(label) == set()
    assert label not in tree.run("clean")[1]


def test_a_live_run_is_not_touched_by_clean_or_by_a_second_start(tree: BenchTree, label: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}))
    process = tree.start("run", folder, "--nodes", "namespace")
    wait_for(folder / "control" / "start.json", process)
    try:
        assert label not in tree.run("clean")[1]
        other = tree.runs / "other"
        other.mkdir()
        (other / "plan.json").write_bytes((folder / "plan.json").read_bytes())
        code, _, err = tree.run("run", other, "--nodes", "namespace")
        assert code == 4
        assert f"label {label} is taken: run {folder} (pid {process.pid}) is live" in err
        assert process.poll() is None
    finally:
        assert finish(process)[0] == 4
    assert result(folder)["outcome"] == "cancelled"


def test_trouble_while_tearing_down_does_not_hide_the_result(tree: BenchTree, label: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"seconds": 1}))
    process = tree.start("run", folder, "--nodes", "namespace")
    wait_for(folder / "control" / "start.json", process)
    busy = Path("/run/looplane", label, "nodes", "host0")
    subprocess.run(["mount", "--bind", busy, busy], check=True)
    with process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert result(folder)["outcome"] == "completed"
    assert "busy" in result(folder)["teardown"]
    assert "tear-down" in err
    code, out, _ = tree.run("clean")  # the reaper knows about mounts
    assert code == 0
    assert f"removed mount {busy}" in out


@pytest.mark.parametrize("kind", KINDS)
def test_every_process_of_the_host_can_be_stopped_and_the_run_goes_on(tree: BenchTree, label: str, kind: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"seconds": 2.5}))
    process = tree.start("run", folder, "--nodes", kind)
    wait_for(folder / "control" / "start.json", process)
    code, out, _ = tree.run("pids", folder, "--node", "host0")
    assert code == 0
    pids = json.loads(out)
    assert len(pids) == (1 if kind == "namespace" else 2)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        assert "host" in Path(f"/proc/{pid}/cmdline").read_text() or kind == "docker"
    with process:
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert result(folder)["outcome"] == "completed"


@pytest.mark.parametrize("kind", KINDS)
def test_serving_through_a_port_on_loopback(tree: BenchTree, label: str, kind: str) -> None:
    manners = {"dpu0": "serve", "client0": "endless"}
    folder = tree.make(bench_plans.demo_plan(label, parameters=manners, time_limit_s=0.5))
    process = tree.start("run", folder, "--nodes", kind, "--serve")
    wait_for(folder / "control" / "serve.json", process)
    url = json.loads((folder / "control" / "serve.json").read_text())["base_url"]
    assert url.startswith("http://127.0.0.1:")
    for _ in range(3):
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.read() == b"10.60.0.1"  # the client's address: the way led over the front network
    assert finish(process)[0] == 0
    assert result(folder) == {"outcome": "completed", "detail": "", "teardown": ""}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (lambda text: "{", 2, "plan.json: Input data was truncated"),
        (lambda text: text.replace('"gpu0"', '"gpu 0"'), 2, "'gpu 0' is not 1 to 63 letters"),
        (lambda text: text.replace('"seed": 1', '"seed": "x"'), 2, "Expected `int`, got `str` - at `$.seed`"),
    ],
)
def test_a_bad_plan_is_one_line_and_exit_2(
    tree: BenchTree, label: str, change: object, code: int, message: str
) -> None:
    folder = tree.make(bench_plans.demo_plan(label))
    path = folder / "plan.json"
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    done, _, err = tree.run("run", folder)
    assert done == code
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_capture_of_a_port_that_is_not_there_is_exit_2(tree: BenchTree, label: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, captures=(bench_plans.capture("gpu0", "front0"),)))
    code, _, err = tree.run("run", folder)
    assert code == 2
    assert "captures[0]: 'gpu0.front0' is not one of client0.front0, dpu0.cnic0, dpu0.front0, gpu0.cnic0" in err


def test_containers_without_docker_are_exit_3(tree: BenchTree, label: str, tmp_path: Path) -> None:
    folder = tree.make(bench_plans.demo_plan(label))
    for name in ("ip", "tc", "bridge", "ethtool", "mnexec", "unshare", "sh", "grep", "which"):
        (tmp_path / name).symlink_to(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") or "/bin/false")
    code, _, err = tree.run("run", folder, "--nodes", "docker", environment={"PATH": str(tmp_path)})
    assert code == 3
    assert "this host cannot: nodes as containers: no Docker engine answers" in err
    assert not (folder / "events").exists()


def test_no_run_folder_is_exit_2(tree: BenchTree) -> None:
    code, _, err = tree.run("run", tree.runs / "none")
    assert (code, len(err.strip().splitlines())) == (2, 1)


def test_a_run_says_each_second_how_many_requests_have_ended(tree: BenchTree, label: str) -> None:
    plan = bench_plans.demo_plan(label, parameters={"seconds": 3.2, "answers": 2}, workload={"requests": 3})
    folder = tree.make(plan)
    code, _, err = tree.run("run", folder, "--nodes", "namespace")
    assert code == 0, err
    told = [line.partition("] ")[2] for line in err.splitlines() if "] running: " in line]
    assert 2 <= len(told) <= 4
    assert set(told) == {"running: 2 of 3 requests"}


def test_a_run_beside_a_live_one_goes_but_says_so(tree: BenchTree, label: str) -> None:
    other = bench_plans.demo_plan(f"{int(label, 16) ^ 1:06x}", parameters={"client0": "endless"})
    first = tree.make(other)
    process = tree.start("run", first, "--nodes", "namespace")
    wait_for(first / "control" / "start.json", process)
    try:
        folder = tree.make(bench_plans.demo_plan(label))
        code, _, err = tree.run("run", folder, "--nodes", "namespace")
        assert code == 0, err
    finally:
        _, first_err = finish(process)
    warnings = [e.text for e in events(folder) if isinstance(e, LineLogged) and e.severity == "warning"]
    said = [text for text in warnings if text.startswith("another run is live on this machine")]
    assert len(said) == 1
    assert other.label in said[0]
    assert label not in first_err


@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_then_clean_of_that_label_alone(tree: BenchTree, label: str, kind: str) -> None:
    folder = tree.make(bench_plans.demo_plan(label, parameters={"client0": "endless"}))
    process = tree.start("run", folder, "--nodes", kind)
    wait_for(folder / "control" / "start.json", process)
    finish(process, signal.SIGKILL)
    code, out, err = tree.run("clean", "--label", label)
    assert code == 0, out + err
    assert f"record /run/looplane/{label} of run {label}" in out
    assert host_state.of_label(label) == set()
    assert result(folder)["outcome"] == "lost"
    assert tree.run("clean", "--label", label)[:2] == (0, "nothing of a dead run is left\n")


def test_clean_of_something_that_is_no_label_is_exit_2(tree: BenchTree) -> None:
    code, _, err = tree.run("clean", "--label", "20260101-000000-abcdef")
    assert code == 2
    assert "six hex digits" in err
