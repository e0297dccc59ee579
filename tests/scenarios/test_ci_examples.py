"""examples/ci as a CI server runs it: the script lines of both pipelines, against a real console with a real token.

Nothing of the pipelines is written a second time: their YAML is read, and what stands in `run:` and `script:` is given
to the shell that the CI systems use, in a folder like a checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from testbed.command.installation import prepare_installation

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = TOP / "examples" / "ci"
RESULTS = "looplane-results"
MAKE_TOKEN = """
import sys, django
django.setup()
from webui.accounts import services
from webui.accounts.roles import Role, Scope
user, _ = services.user_create(name=sys.argv[1], role=Role(sys.argv[2]))
user.one_time_password = False
user.save()
print(services.token_create(user=user, name="ci", scopes=[Scope(word) for word in sys.argv[3:]])[1])
"""
GITHUB = {"GITHUB_REPOSITORY": "us/ours", "GITHUB_SHA": "0123456789abcdef0123456789abcdef01234567"}
GITLAB = {"CI_PROJECT_ID": "7", "CI_COMMIT_SHORT_SHA": "01234567"}

pytestmark = [pytest.mark.root]


@dataclass
class Console:
    """A console that is up, and what reaches it."""

    url: str
    state: Path

    def token(self, name: str, role: str, *scopes: str) -> str:
        place = prepare_installation(self.state)
        return place.run_as_user([sys.executable, "-c", MAKE_TOKEN, name, role, *scopes]).strip()

    def rows(self, token: str, path: str = "runs") -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.url}/api/v1/{path}", headers=headers, timeout=90).json()


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    """In /var/tmp, because the service user must get there."""
    state = Path(tempfile.mkdtemp(prefix="looplane-ci-", dir="/var/tmp"))
    state.chmod(0o755)
    environment = {**os.environ, "LOOPLANE_STATE": str(state)}
    command = [sys.executable, "-m", "testbed.command"]
    try:
        done = subprocess.run([*command, "up", "--port", "0", "--detach"], cwd=TOP, env=environment,
                              capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        found = re.search(r"Console\s+(\S+)", done.stdout)
        assert found, done.stdout + done.stderr
        yield Console(found[1].rstrip("/"), state)
    finally:
        subprocess.run([*command, "stop"], cwd=TOP, env=environment, capture_output=True, timeout=120, check=False)
        shutil.rmtree(state, ignore_errors=True)


@pytest.fixture(scope="module")
def token(console: Console) -> str:
    return console.token("ci", "runner", "read", "run")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Somebody's repository with our experiment in it, and Looplane beside it as the pipelines put it there."""
    shutil.copy(EXAMPLES / "regression.toml", tmp_path)
    (tmp_path / "looplane").mkdir()
    launcher = tmp_path / "looplane" / "looplane"
    # The interpreter is the one at hand, so that the test makes no environment of its own; the rest is the launcher.
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH="{TOP}" exec "{sys.executable}" -m testbed.command "$@"\n')
    launcher.chmod(0o755)
    return tmp_path


def github_script() -> str:
    steps = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())["jobs"]["latency"]["steps"]
    (script,) = [step["run"] for step in steps if "LOOPLANE_TOKEN" in step.get("env", {})]
    return str(script)


def gitlab_script() -> str:
    return "\n".join(yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["latency"]["script"])


PIPELINES: dict[str, tuple[Callable[[], str], dict[str, str]]] = {
    "github": (github_script, GITHUB),
    "gitlab": (gitlab_script, GITLAB),
}


def job(pipeline: str, checkout: Path, console: Console, token: str, number: int) -> subprocess.Popen[str]:
    """Starts the pipeline's script as its runner would: bash, and the variables that it promises."""
    script, variables = PIPELINES[pipeline]
    own = {"GITHUB_RUN_ID": str(number), "GITHUB_RUN_ATTEMPT": "1", "CI_JOB_ID": str(number)}
    reach = {"LOOPLANE_URL": console.url, "LOOPLANE_TOKEN": token}
    return subprocess.Popen(["bash", "-eo", "pipefail", "-c", script()], cwd=checkout, text=True,
                            env={**os.environ, **variables, **own, **reach},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip


def run_job(*told: Any) -> tuple[int, str]:
    with job(*told) as process:
        try:
            printed, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, printed


def left(checkout: Path) -> tuple[ElementTree.Element, list[Any]]:
    """The JUnit document and the trace's events that the job has kept."""
    junit = ElementTree.parse(checkout / RESULTS / "junit.xml").getroot()
    trace = json.loads((checkout / RESULTS / "trace.json").read_bytes())
    return junit, trace["traceEvents"]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_change_that_keeps_the_promises_passes(
    pipeline: str, checkout: Path, console: Console, token: str
) -> None:
    code, printed = run_job(pipeline, checkout, console, token, 1)
    assert code == 0, printed
    assert token not in printed
    junit, trace = left(checkout)
    assert (junit.get("failures"), junit.get("errors")) == ("0", "0")
    assert len(junit.findall(".//testcase")) == 5  # three bounds, the run, its fidelity
    assert len(trace) > 1000
    code, again = run_job(pipeline, checkout, console, token, 1)  # the same job once more is the same run
    assert code == 0
    assert re.findall(r"run (\S+): finished", printed) == re.findall(r"run (\S+): finished", again)


def test_a_change_that_breaks_one_fails_the_build_and_leaves_the_evidence(
    checkout: Path, console: Console, token: str
) -> None:
    experiment = checkout / "regression.toml"
    text = experiment.read_text()
    broken = text.replace("at_most = 20 ", "at_most = 0.5 ")
    assert broken != text
    experiment.write_text(broken)
    code, printed = run_job("github", checkout, console, token, 2)
    assert code == 1, printed
    assert "BROKEN  systems.blink.tpot_ms.p50 at most 0.5" in printed
    junit, trace = left(checkout)
    assert [case.get("name") for case in junit.findall(".//testcase[failure]")] == [
        "systems.blink.tpot_ms.p50 at most 0.5"
    ]
    assert len(trace) > 1000


def test_a_file_that_cannot_be_read_is_refused_in_the_readers_words(
    checkout: Path, console: Console, token: str
) -> None:
    experiment = checkout / "regression.toml"
    experiment.write_text(experiment.read_text().replace("requests = 100\n", 'requests = "many"\n', 1))
    before = console.rows(token)["runs"]
    code, printed = run_job("gitlab", checkout, console, token, 3)
    assert code == 2
    assert "workload.requests" in printed
    assert "Traceback" not in printed
    assert console.rows(token)["runs"] == before


def test_a_token_that_may_not_start_runs_is_told_so(checkout: Path, console: Console) -> None:
    reader = console.token("reader", "runner", "read")
    code, printed = run_job("github", checkout, console, reader, 4)
    assert code == 2
    assert "the token may not do this" in printed
    code, printed = run_job("github", checkout, console, "lp_unknown", 5)
    assert code == 2
    assert "the token is not known" in printed


def test_a_cancelled_job_cancels_its_run(checkout: Path, console: Console, token: str) -> None:
    experiment = checkout / "regression.toml"  # long enough to be under way when the job is ended
    experiment.write_text(experiment.read_text().replace("requests = 100\n", "requests = 20000\n", 1))
    with job("github", checkout, console, token, 6) as process:
        try:
            end = time.monotonic() + 90
            while not (found := [run for run in console.rows(token)["runs"] if run["state"] == "running"]):
                assert time.monotonic() < end
                assert process.poll() is None, process.communicate()
                time.sleep(0.2)
            os.killpg(process.pid, signal.SIGTERM)  # as CI systems end a job
            printed, _ = process.communicate(timeout=90)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert "asked it to end" in printed
    run = console.rows(token, f"runs/{found[0]['id']}?wait=30")
    assert (run["state"], run["outcome"]) == ("finished", "cancelled")
