"""`looplane serve`: an unmodified OpenAI client against the whole emulation, and against the single process."""

import asyncio
import itertools
import re
import subprocess
import sys
import time

import httpx
import openai
import pytest
import whole_run
from serving import MODEL, Serving

from testbed.events.log import check_log

MESSAGES = [{"role": "user", "content": "Where does the white rabbit go?"}]
LONG = {"ignore_eos": True}
USAGE = {"include_usage": True}


@pytest.fixture(
    scope="module",
    params=[
        "sim",
        pytest.param("namespace", marks=pytest.mark.root),
        pytest.param("docker", marks=[pytest.mark.root, pytest.mark.docker]),
    ],
)
def serving(request, tmp_path_factory):
    on = ["--on", "sim"] if request.param == "sim" else ["--on", "mininet", "--set", f"nodes={request.param}"]
    found = Serving(tmp_path_factory.mktemp("serve"), *on)
    yield found
    assert found.stop() == 0, found.said.read_text(errors="replace")
    for node in ("dpu0", "gpu0", "bench"):
        assert check_log(found.folder / "events" / f"{node}.jsonl")


@pytest.fixture
def client(serving):
    with openai.OpenAI(base_url=serving.base_url, api_key="none", max_retries=0, timeout=60) as found:
        yield found


def test_sync_client(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    said = {"model": MODEL, "max_tokens": 12, "seed": 1, "extra_body": LONG}
    whole = client.chat.completions.create(messages=MESSAGES, **said)
    *chunks, last = client.chat.completions.create(messages=MESSAGES, **said, stream=True, stream_options=USAGE)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert last.usage == whole.usage
    assert whole.usage.completion_tokens == 12
    text = client.completions.create(prompt="Once", **said)
    pieces = [chunk.choices[0].text for chunk in client.completions.create(prompt="Once", **said, stream=True)]
    assert "".join(pieces) == text.choices[0].text
    assert text.choices[0].finish_reason == "length"


def test_async_client(serving):
    async def run():
        async with openai.AsyncOpenAI(base_url=serving.base_url, api_key="none", max_retries=0, timeout=60) as client:

            async def one(number):
                stream = await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": f"Number {number}"}], max_tokens=8 + number,
                    stream=True, stream_options=USAGE, extra_body=LONG,
                )  # fmt: skip
                return [chunk async for chunk in stream][-1].usage.completion_tokens

            whole = await client.completions.create(model=MODEL, prompt="a", max_tokens=3, extra_body=LONG)
            return whole.usage.completion_tokens, await asyncio.gather(*map(one, range(8)))

    assert asyncio.run(run()) == (3, list(range(8, 16)))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"model": "other"}, openai.NotFoundError),
        ({"max_tokens": -1}, openai.BadRequestError),
        ({"max_tokens": 100_000}, openai.BadRequestError),
    ],
)
def test_error_classes(client, said, error):
    with pytest.raises(error):
        client.completions.create(**{"model": MODEL, "prompt": "a", **said})


def test_tokens_come_one_by_one_and_not_in_a_heap(client):
    """Nothing on the way may gather the stream: steps of 6 ms and more of true time must be seen apart."""
    stream = client.completions.create(model=MODEL, prompt="a", max_tokens=40, stream=True, extra_body=LONG)
    times = [time.monotonic() for _ in stream]
    gaps = sorted(after - before for before, after in itertools.pairwise(times))
    # A busy machine brings some together; what gathers on the way brings all.
    assert gaps[len(gaps) * 3 // 4] > 0.004


def test_client_that_leaves_frees_its_slot(serving, client):
    stream = client.completions.create(model=MODEL, prompt="a", max_tokens=4000, stream=True, extra_body=LONG)
    next(stream)
    stream.close()
    end = time.monotonic() + 20
    while httpx.get(f"{serving.root}/load").json() != {"server_load": 0}:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_guides_examples_run_as_they_stand(serving, capsys):
    guide = (whole_run.TOP / "docs" / "guide" / "serving.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(program, {"BASE_URL": serving.base_url})  # what a reader would paste
    assert capsys.readouterr().out.strip()
    (path, body), = re.findall(r"curl -N BASE_URL(\S+) .*? -d '(.*?)'", guide, re.DOTALL)
    answer = httpx.post(serving.base_url + path, content=body, timeout=60)
    assert answer.text.endswith("data: [DONE]\n\n")


def test_lanes_changed_under_a_stream_reach_both_ends_of_a_link(serving, client):
    """`looplane lanes` while tokens flow: the kernel's queues and the NICs' arbiters, and no token is missed."""
    if not (serving.folder / "control" / "start.json").exists():
        pytest.skip("a simulation is one process, without ports that could be changed")
    said = {"model": MODEL, "prompt": "Once", "max_tokens": 60, "seed": 1, "extra_body": LONG}
    whole = client.completions.create(**said).choices[0].text
    stream = client.completions.create(**said, stream=True)
    pieces = [next(stream).choices[0].text]
    words = [sys.executable, "-m", "testbed.command", "lanes", str(serving.folder), "--vlarb-high=0:64,1:192,3:64"]
    done = subprocess.run(words, cwd=whole_run.TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line[0] != " "] == ["dpu0.cnic0", "gpu0.cnic0"]
    assert "".join([*pieces, *(chunk.choices[0].text for chunk in stream)]) == whole
    end, missing = time.monotonic() + 10, {"dpu0-nic", "gpu0-nic"}
    while missing:  # a NIC's log is written a little later
        assert time.monotonic() < end, missing
        told = whole_run.events_of(serving.folder, "line.logged")
        missing -= {node for node, event in told if event.text == "lanes of cnic0 are those of another table"}
