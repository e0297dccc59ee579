"""The single process as a command: how it starts, says where it is, and ends."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from emulators.in_process import PacedServer
from emulators.serving_side import model_card
from testbed.events.log import check_log, read_log
from testbed.experiment.plan import write_plan
from testbed.machine import Received, UnexpectedMessage

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def start(tmp_path):
    running = []

    def run(*arguments):
        words = [sys.executable, "-m", "emulators.in_process", "--run", str(tmp_path), *arguments]
        running.append(subprocess.Popen(words, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return running[-1]

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("how", ["signal", "stop"])
def test_it_serves_until_it_is_stopped(how, start, make_plan, tmp_path):
    (tmp_path / "plan.json").write_bytes(write_plan(make_plan(tmp_path)))
    process = start()
    address = tmp_path / "control" / "serve.json"
    end = time.monotonic() + 60
    while not address.exists():
        assert process.poll() is None, process.stdout.read().decode()
        assert time.monotonic() < end
        time.sleep(0.02)
    url = json.loads(address.read_bytes())["base_url"]
    answer = httpx.post(f"{url}/completions", json={"prompt": "a", "max_tokens": 3, "ignore_eos": True}, timeout=60)
    assert answer.json()["usage"]["completion_tokens"] == 3
    if how == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        (tmp_path / "control" / "stop").touch()
    assert process.wait(30) == 0
    for node in ("dpu0", "gpu0", "host0", "bench"):
        assert check_log(tmp_path / "events" / f"{node}.jsonl")
    bench = [record.event for record in read_log(tmp_path / "events" / "bench.jsonl")]
    assert bench[-1].outcome == "passed"
    assert not (tmp_path / "events" / "client0.jsonl").exists()


def test_run_folder_without_a_plan_is_bad_input(start):
    process = start()
    assert process.wait(30) == 2
    assert "plan.json" in process.stdout.read().decode()


def test_address_that_cannot_be_had_is_bad_input(start, make_plan, tmp_path):
    (tmp_path / "plan.json").write_bytes(write_plan(make_plan(tmp_path)))
    process = start("--address", "192.0.2.1")
    assert process.wait(60) == 2
    assert "192.0.2.1" in process.stdout.read().decode()


def test_card(make_plan, tmp_path):
    card = model_card(make_plan(tmp_path, context_tokens=4096))
    assert (card.id, card.max_model_len) == ("llama-3-8b", 4096)


def test_a_fault_of_a_machine_ends_the_server(make_plan, tmp_path, vocabulary):
    """Nothing that a machine holds can be relied on after it raised: the run ends, and the log has the traceback."""

    async def run():
        server = PacedServer(make_plan(tmp_path), tmp_path, vocabulary)
        server.start()
        with pytest.raises(UnexpectedMessage):
            server.port._deliver(Received("gpu0", b""))  # nothing that the port itself would ever send
        with pytest.raises(UnexpectedMessage):
            await server.ended
        server.close()

    asyncio.run(run())
    *_, said, finished = (record.event for record in read_log(tmp_path / "events" / "bench.jsonl"))
    assert "Traceback" in said.text
    assert finished.outcome == "errored"
