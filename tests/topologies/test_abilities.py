"""The doctor: it tries, it names what is missing and what would help, and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from topologies import abilities
from topologies.abilities import Finding

SOURCE = Path(__file__).resolve().parents[2]


def doctor(*words: str, **changes: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "topologies", "doctor", *words]
    environment = {**os.environ, **changes}
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.root
@pytest.mark.usefixtures("unchanged_host")
def test_json_names_every_ability_and_changes_nothing() -> None:
    code, out = doctor("--json")
    answer = json.loads(out)
    findings = {finding["name"]: finding for finding in answer["findings"]}
    assert len(findings) == len(answer["findings"])
    for name in ("root", "qdisc htb", "kernel veth", "bridge", "docker", "cpus", "cgroups", "SCHED_FIFO", "schedstat"):
        assert name in findings
    assert all(finding["level"] in ("ok", "note", "warning", "missing") for finding in findings.values())
    assert all(finding["detail"] for finding in findings.values())
    assert all(finding["remedy"] for finding in findings.values() if finding["level"] == "missing")
    assert answer["can_emulate"] is (code == 0)


@pytest.mark.root
def test_what_the_kernel_refuses_is_quoted() -> None:
    findings = {finding.name: finding for finding in abilities.probe_all()}
    htb = findings["qdisc htb"]
    assert htb.level in ("ok", "missing")
    for finding in findings.values():
        if finding.name.startswith("qdisc") and finding.level != "ok":
            assert "the kernel says: " in finding.detail
            assert "CONFIG_NET_SCH_" in finding.remedy


def test_a_program_that_is_not_installed_is_missing_only_if_it_is_needed(tmp_path: Path) -> None:
    needed = abilities._program(("no-such-program", "a-package", True, "a purpose"))
    spare = abilities._program(("no-such-program", "a-package", False, "a purpose"))
    assert (needed.level, spare.level) == ("missing", "note")
    assert needed.remedy == "apt-get install a-package"
    assert abilities.lacking([needed, spare]) == [needed]


def test_without_root_it_says_what_root_would_add() -> None:
    if os.geteuid() != 0:
        assert doctor()[0] == 3
        return
    program = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); from topologies import abilities\n"
    program += "print([f.name for f in abilities.lacking(abilities.probe_all())])"
    paths = os.pathsep.join([str(SOURCE), *sys.path])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "LOOPLANE_STATE": "/var/tmp"}
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program], cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'root'" in done.stdout


def test_lines_for_a_terminal() -> None:
    lines = abilities.lines([Finding("a", "ok", "fine"), Finding("b", "missing", "gone", "get it")])
    assert lines == ["ok      a: fine", "MISSING b: gone", "        to mend: get it"]
