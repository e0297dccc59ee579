"""What protects a server is put in force and read back; what the host lacks is named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bench_plans
import msgspec
import pytest

from testbed.baselines.mitigations import MITIGATIONS, WEIGHT
from testbed.events.host_events import MitigationApplied
from testbed.experiment.plan import Plan
from topologies import mitigations
from topologies.mitigations import Mitigations, cache_partition_lacking, huge_pages_lacking, partition


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def applied(plan: Plan, pid: int, *names: str, resctrl: Path = Path("/nowhere")) -> list[MitigationApplied]:
    plan = msgspec.structs.replace(plan, mitigations=names)
    found = Mitigations(plan, {"core": pid}, [min(os.sched_getaffinity(0))], resctrl)
    events = list(found.apply())
    found.undo()
    return events


@pytest.mark.root
def test_a_pinned_process_may_use_its_core_alone_and_that_core_has_a_price(
    label: str, sleeper: subprocess.Popen[bytes]
) -> None:
    core = min(os.sched_getaffinity(0))
    (event,) = applied(bench_plans.demo_plan(label), sleeper.pid, "pinning")
    assert (event.applied, event.detail, event.reserved_cores) == (True, f"core on core {core}", 1.0)
    assert os.sched_getaffinity(sleeper.pid) == {core}


@pytest.mark.root
def test_priority_is_a_weight_of_the_whole_session_where_there_is_no_container(
    label: str, sleeper: subprocess.Popen[bytes]
) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel has no autogroup")
    (event,) = applied(bench_plans.demo_plan(label), sleeper.pid, "priority")
    assert event.applied
    assert "nice -10" in event.detail
    assert "nice -10" in Path(f"/proc/{sleeper.pid}/autogroup").read_text()


def test_huge_pages_that_the_kernel_did_not_give_are_not_in_force(
    label: str, sleeper: subprocess.Popen[bytes]
) -> None:
    (event,) = applied(bench_plans.demo_plan(label), sleeper.pid, "huge_pages")
    assert not event.applied
    assert event.detail in (huge_pages_lacking(), "the kernel has given the server no huge page")


@pytest.mark.skipif(huge_pages_lacking() != "", reason=huge_pages_lacking())
def test_the_environment_of_huge_pages_gives_a_heap_of_them(label: str) -> None:
    code = "x = [bytes([i % 250]) * 40 for i in range(400_000)]; print(flush=True); input()"
    environment = {**os.environ, **mitigations.HUGE_PAGES_ENVIRONMENT}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (event,) = applied(bench_plans.demo_plan(label), process.pid, "huge_pages")
        process.kill()
    assert event.applied, event.detail
    assert "MiB in huge pages" in event.detail


def test_a_host_without_cache_allocation_says_so(label: str, tmp_path: Path) -> None:
    assert "no resctrl" in cache_partition_lacking(tmp_path / "resctrl")
    assert "not mounted" in cache_partition_lacking(tmp_path)
    (event,) = applied(bench_plans.demo_plan(label), os.getpid(), "cache_partition", resctrl=tmp_path)
    assert not event.applied
    assert "not mounted" in event.detail


def test_a_partition_gives_the_server_the_papers_share_and_is_taken_back(label: str, tmp_path: Path) -> None:
    """On a folder with resctrl's files; the real one is a file system of CPUs that have the feature."""
    (tmp_path / "schemata").write_text("    L3:0=fff;1=fff\n    MB:0=100\n")
    plan = msgspec.structs.replace(bench_plans.demo_plan(label), mitigations=("cache_partition",))
    found = Mitigations(plan, {"core": os.getpid()}, [0], tmp_path)
    (event,) = found.apply()
    group = tmp_path / mitigations.resctrl_group(label)
    assert event.applied, event.detail
    assert (group / "schemata").read_text() == "L3:0=7f;1=7f\n"
    assert (group / "tasks").read_text() == str(os.listdir("/proc/self/task")[-1])
    assert (tmp_path / "schemata").read_text() == "L3:0=f80;1=f80\n"
    for file in group.iterdir():  # those of resctrl go with their folder
        file.unlink()
    found.undo()
    assert (tmp_path / "schemata").read_text() == "L3:0=fff;1=fff\n"
    assert not group.exists()


@pytest.mark.parametrize(
    ("schemata", "server", "others"),
    [("L3:0=7ff\n", "L3:0=3f\n", "L3:0=7c0\n"), ("MB:0=10\n  L3:0=3;4=3\n", "L3:0=1;4=1\n", "L3:0=2;4=2\n")],
)
def test_masks_are_contiguous_and_disjoint(schemata: str, server: str, others: str) -> None:
    assert partition(schemata) == (server, others)


def test_every_mitigation_of_an_experiment_is_described_and_has_a_price() -> None:
    from typing import get_args, get_type_hints

    from testbed.experiment.spec import SystemSpec

    (names,) = (get_args(each) for each in get_args(get_type_hints(SystemSpec)["mitigations"]))
    assert list(MITIGATIONS) == list(names)
    assert all(row.what and row.price for row in MITIGATIONS.values())
    assert [name for name, row in MITIGATIONS.items() if not row.paper] == ["priority"], "the paper gives no figure"
    assert 9 < WEIGHT < 10
