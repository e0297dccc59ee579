"""Neighbours in a simulation: the measured contention of the host's CPU set, or one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.experiment.complaints import SpecError
from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_tables
from testbed.experiment.surroundings import check_surroundings, contention_at
from testbed.experiment.sweep import Place
from testbed.serving.profiles import ProfileError

ROWS = """
source = "measured"
[[rows]]
threads = 4
slowdown = 1.2
[[rows]]
threads = 12
slowdown = 1.5
stalls_per_ms = 0.1
stall_ms = [1.0, 2.0]
wake_ms = [0.0, 3.0]
"""


def plan_of(clock: str = "simulated", kind: str = "host-driven", threads: int = 12, **about: object) -> Plan:
    tables = {
        "name": "x",
        "title": "X",
        "systems": {"s": {"kind": kind, "neighbours": ["zip"], **about}},
        "neighbours": {"zip": {"kind": "pbzip2", "threads": threads}},
        "workload": {"requests": 1},
    }
    spec = spec_from_tables(tables, "x.toml")
    return compile_plan(spec, Place("s", (), 0), run="20260101-000000-0a1b2c", label="0a1b2c", clock=clock)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "host-contention.toml").write_text(ROWS)
    return tmp_path


def test_a_host_on_the_hosts_cpu_set_has_the_row_of_its_neighbours(folder: Path) -> None:
    plan = plan_of(threads=12)
    found = contention_at(plan, plan.node("host0"), folder)
    assert found is not None
    assert (found.threads, found.slowdown, found.stall_ms) == (12, 1.5, (1.0, 2.0))
    assert contention_at(plan, plan.node("gpu0"), folder) is None


def test_reserved_cores_have_none(folder: Path) -> None:
    plan = plan_of(cores={"host": "reserved"})
    assert contention_at(plan, plan.node("host0"), folder) is None
    check_surroundings(plan, folder / "nowhere")


def test_what_nobody_has_measured_is_refused_in_one_line(tmp_path: Path) -> None:
    line = r"^system s has neighbours \(zip\).*host-contention\.toml: No such file"
    with pytest.raises(ValueError, match=line) as told:
        check_surroundings(plan_of(), tmp_path)
    assert "\n" not in str(told.value)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "host-contention.toml").write_text("source = 3")
    plan = plan_of()
    with pytest.raises(ProfileError, match=r"host-contention\.toml"):
        contention_at(plan, plan.node("host0"), tmp_path)


def test_an_emulation_and_a_server_without_a_host_loop_need_no_measurement(tmp_path: Path) -> None:
    check_surroundings(plan_of(clock="wall"), tmp_path)
    check_surroundings(plan_of(kind="blink"), tmp_path)
    check_surroundings(plan_of(threads=0), tmp_path)


def test_a_simulation_says_what_it_has_of_neighbours_and_what_not() -> None:
    said = "s: 12 threads of neighbours; none runs, and work on the host's cores "
    assert plan_of().notes[-1] == f"{said}is as measured beside so many (profiles/host-contention.toml)"
    assert plan_of(kind="blink").notes[-1] == plan_of(cores={"host": "reserved"}).notes[-1]
    assert plan_of(kind="blink").notes[-1] == f"{said}is none of this system's"
    protected = plan_of(mitigations=["huge_pages"]).notes
    assert protected[-2] == "huge_pages: under the simulated clock nothing of it is modelled"
    moved = plan_of(kind="blink", cores={"gpu": "host"}).notes
    assert moved[-1] == "s: gpu on cores of the host: only an emulation shows what that does"
    assert not any("neighbours" in note for note in plan_of(threads=0).notes)


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({"neighbours": ["zip", "zip"]}, r's\.neighbours\[1\]: "zip": each once'),
        ({"mitigations": ["priority", "priority"]}, r's\.mitigations\[1\]: "priority": each once'),
        ({"kind": "blink", "mitigations": ["priority"]}, r"s\.mitigations: .*no software of this system serves"),
        (
            {"mitigations": ["pinning"], "cores": {"host": "host"}},
            r's\.cores\.host: "host": not with pinning, which is cores of its own',
        ),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(about: dict[str, object], line: str) -> None:
    with pytest.raises(SpecError, match=line) as told:
        plan_of(**about)  # type: ignore[arg-type]
    assert "\n" not in str(told.value)
