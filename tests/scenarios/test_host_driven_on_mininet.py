"""Host-driven servers on the bench: real processes on the host's cores, a device over PCIe, and what dies with what."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter

import pytest
import whole_run

from testbed.baselines.host_driven_parameters import HostDrivenParameters, host_costs
from testbed.events.log import check_log, log_files
from testbed.experiment.launch import prepare
from testbed.experiment.plan import read_plan
from testbed.experiment.reading import read_spec
from topologies.bench_pids import process_pids
from topologies.registry import start_time

pytestmark = pytest.mark.root
SMALL = "host-driven-small.toml"
PROCESSES = ["api", "core", "worker"]


def said(folder):
    """The text of each request's answer, by name."""
    names = {event.request: event.name for _, event in whole_run.events_of(folder, "request.arrived")}
    texts = dict.fromkeys(names.values(), "")
    for _, event in whole_run.events_of(folder, "tokens.detokenised"):
        texts[names[event.request]] += event.text
    return texts


def started(folder):
    """Pid and start of each process: one that has ended is told from another that has its number."""
    pids = process_pids(read_plan((folder / "plan.json").read_bytes()), "host0")
    return {name: (pid, start_time(pid)) for name, pid in pids.items()}


def gone(pid, start):
    return start_time(pid) != start


@pytest.mark.docker
def test_a_server_of_three_processes_says_what_the_simulated_one_says(prepare_run, start_bench, simulate_run):
    folder = prepare_run(SMALL, "nodes=docker")
    bench = start_bench(folder)
    bench.wait_for("start.json")
    processes = started(folder)
    assert sorted(processes) == PROCESSES
    assert {os.sched_getscheduler(pid) for pid, _ in processes.values()} == {os.SCHED_OTHER}, "a host is not favoured"
    assert os.SCHED_FIFO in {os.sched_getscheduler(pid) for pid in bench.pids("gpu0")}, "a device of its own is"
    assert bench.end() == 0, bench.said()
    assert not whole_run.events_of(folder, "request.failed")
    assert said(folder) == said(simulate_run(SMALL)), "one policy, one sampler, another place"
    for path in log_files(folder / "events"):
        check_log(path)
    ended = dict(whole_run.events_of(folder, "node.stopped"))
    assert {name: ended[name].code for name in ("host0", "host0-core", "host0-worker", "gpu0")} == {
        "host0": 0, "host0-core": 0, "host0-worker": 0, "gpu0": 0,
    }  # fmt: skip
    operations = [event for _, event in whole_run.events_of(folder, "host.operation")]
    work = Counter((event.process, event.operation) for event in operations)
    launches = len(whole_run.events_of(folder, "graph.launched"))
    prompts = [event.tokens for _, event in whole_run.events_of(folder, "request.tokenised")]
    costs = host_costs(HostDrivenParameters(shape="vllm"))
    assert len(prompts) == 24
    assert sum(event.amount for event in operations if event.operation == "tokenise") == sum(
        costs.take_in(tokens, text=True) for tokens in prompts
    )
    assert work["worker", "launch"] == launches
    assert sorted(event.process for _, event in whole_run.events_of(folder, "processor.calibrated")) == PROCESSES
    measured = [event for _, event in whole_run.events_of(folder, "graph.measured")]
    assert len(measured) == launches
    assert 1.0 <= statistics.median(event.elapsed / event.modelled for event in measured) < 1.01
    assert all(gone(*process) for process in processes.values())


def test_a_process_that_is_killed_ends_the_run_with_its_name_and_leaves_nothing(tmp_path, start_bench):
    """Faults A1, A13: the core of three processes dies while answers stream."""
    many = ("nodes=namespace", "workload.requests=500", "systems.server.shape=sglang")
    folder = prepare(read_spec(whole_run.EXPERIMENTS / SMALL, many), tmp_path, clock="wall").folder.path
    bench = start_bench(folder)
    bench.wait_for("start.json")
    time.sleep(1.0)
    processes = started(folder)
    assert sorted(processes) == ["api", "core"], "SGLang's worker is a part of its scheduler's process"
    os.kill(processes["core"][0], signal.SIGKILL)
    assert bench.end(60) == 4
    assert "process core was killed by SIGKILL" in bench.said()
    assert all(gone(*process) for process in processes.values())
    ended = dict(whole_run.events_of(folder, "node.stopped"))
    assert ended["host0"].code == 4
    assert "core" in ended["host0"].detail
    assert ended["host0-core"].code != 0
    assert not list((folder / "control").glob("*.pcie"))
