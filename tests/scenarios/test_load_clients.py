"""Clients that speak as guidellm and `vllm bench serve` against a real `looplane serve`: what they send, and that the
figures which they reckon agree with the report's, definition by definition (serving.md §3, §4.1).

guidellm itself runs in test_guidellm.py, and is held against the same bytes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from load_clients import (
    Answer,
    Figures,
    Guidellm,
    VllmBench,
    at,
    constant_moments,
    gamma_moments,
    guidellm_figures,
    sweep,
    vllm_figures,
)
from recorder import Recorder
from serving import ON, Serving, served_exchanges

from testbed.experiment.summary import read_summary
from testbed.metrics.latency import Distribution, Latencies, latencies
from testbed.metrics.requests import Exchange

PROMPT = "Alice was beginning to get very tired of sitting by her sister on the bank"
DILATION = 4.0
"""Of serve.toml: wall time divided by this is true time."""

GUIDELLM_CHAT = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\nContent-Length: 238\r\n"
    b"Content-Type: application/json\r\n\r\n"
    b'{"model":"llama-3-8b","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},'
    b'"max_completion_tokens":4,"ignore_eos":true,'
    b'"messages":[{"role":"user","content":[{"type":"text","text":"1 0 m0 Hard pass have"}]}]}'
)
"""What guidellm 0.8.1 sent, recorded, with the host blanked out."""

GUIDELLM_TEXT = (
    b"POST /v1/completions HTTP/1.1\r\nHost: HOST\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\nContent-Length: 172\r\n"
    b"Content-Type: application/json\r\n\r\n"
    b'{"model":"llama-3-8b","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},'
    b'"max_tokens":4,"ignore_eos":true,"prompt":"1 0 m0 Hard pass have"}'
)

VLLM_TEXT = (
    b"POST /v1/completions HTTP/1.1\r\nHost: HOST\r\nx-request-id: NAME\r\nAccept: */*\r\n"
    b"Accept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.11 aiohttp/3.14.5\r\nContent-Length: 237\r\n"
    b"Content-Type: application/json\r\n\r\n"
    b'{"model": "llama-3-8b", "prompt": "\\u2014-\\u63d0\\u7434-tree Bonus craving Tobacco \\ud070 aveva", '
    b'"repetition_penalty": 1.0, "max_tokens": 4, "logprobs": null, "stream": true, '
    b'"stream_options": {"include_usage": true}, "ignore_eos": true}'
)
"""What `vllm bench serve` 0.33.0 sent, recorded, with host and request id blanked out."""

VLLM_CHAT = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nx-request-id: NAME\r\n"
    b"Accept: */*\r\nAccept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.11 aiohttp/3.14.5\r\n"
    b"Content-Length: 264\r\n\r\n"
    b'{"model": "llama-3-8b", "messages": [{"role": "user", "content": [{"type": "text", '
    b'"text": "\\u2014-\\u63d0\\u7434-tree Bonus craving Tobacco \\ud070 aveva"}]}], "max_completion_tokens": 4, '
    b'"stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true}'
)


def blanked(request: bytes) -> bytes:
    """Without what differs from run to run: host, request id, and the versions of Python and aiohttp."""
    for pattern, instead in (
        (rb"Host: \S+", b"Host: HOST"),
        (rb"x-request-id: \S+", b"x-request-id: NAME"),
        (rb"Python/\S+ aiohttp/\S+", b"Python/3.11 aiohttp/3.14.5"),
        (rb"(Accept-Encoding: gzip, deflate)[^\r]*", rb"\1"),
    ):
        request = re.sub(pattern, instead, request)
    return request


class Loaded(Serving):
    """A server, and the answers that came while bytes were recorded."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(folder, *arguments)
        self.recorded: list[Answer] = []


def send(serving: Loaded, client: type[Guidellm] | type[VllmBench], chat: bool, prompt: str) -> list[bytes]:
    """What the client says to ask once, as bytes on the wire; the answer is whole."""

    async def ask(url: str) -> Answer:
        async with client(url, chat=chat) as opened:
            return await opened.ask(prompt, 4)

    with Recorder(int(serving.root.rpartition(":")[2])) as recorder:
        answer = asyncio.run(ask(recorder.url))
    assert (answer.error, answer.tokens) == ("", 4)
    serving.recorded.append(answer)
    return [blanked(request) for request in recorder.requests]


@pytest.fixture(
    scope="module",
    params=[
        "sim",
        pytest.param("namespace", marks=pytest.mark.root),
        pytest.param("host-driven", marks=[pytest.mark.root, pytest.mark.soak]),
    ],
)
def serving(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, soak: bool
) -> Iterator[Loaded]:
    if request.param == "host-driven" and not soak:
        pytest.skip("a third server for the same clients: only with --soak")
    found = Loaded(tmp_path_factory.mktemp("clients"), *ON[request.param])
    yield found
    if found.process.poll() is None:
        assert found.stop() == 0, found.said.read_text(errors="replace")


@pytest.mark.parametrize(
    ("client", "chat", "prompt", "recorded"),
    [
        (Guidellm, True, "1 0 m0 Hard pass have", GUIDELLM_CHAT),
        (Guidellm, False, "1 0 m0 Hard pass have", GUIDELLM_TEXT),
        (VllmBench, False, "—-提琴-tree Bonus craving Tobacco 큰 aveva", VLLM_TEXT),
        (VllmBench, True, "—-提琴-tree Bonus craving Tobacco 큰 aveva", VLLM_CHAT),
    ],
)
def test_the_clients_say_what_the_tools_were_recorded_to_say(
    serving: Loaded, client: type[Guidellm] | type[VllmBench], chat: bool, prompt: str, recorded: bytes
) -> None:
    *before, last = send(serving, client, chat, prompt)
    asked = [request.split(b" HTTP")[0] for request in before]
    probes = [b"GET /health", b"GET /v1/models"]
    if client is VllmBench:
        probes = [b"GET /v1/models", b"POST /tokenize", b"GET /metrics"]
    assert asked == probes
    assert last == recorded


def near(client: tuple[float, float], ours: Distribution, *, relative: float, late_ms: float) -> None:
    """Mean and median, in true time: the client's is never below the front end's by more than the shares, and above by
    what the way between them takes."""
    for theirs, mine in zip(client, (ours.mean, ours.p50), strict=True):
        assert mine is not None
        true = theirs / DILATION
        assert mine * (1 - relative) <= true <= mine * (1 + relative) + late_ms, (true, mine, ours.definition)


def agree(found: Figures, ours: Latencies, at_once: int = 1) -> None:
    """A chunk's way from the front end to the client is HTTP on loopback: under 5 ms of true time in the mean, and as
    much more for each of `at_once` requests whose connections one process opens in one moment. It is the same for all
    chunks, so gaps agree within 10 %."""
    near(found.ttft, ours.ttft_ms, relative=0.1, late_ms=5.0 * at_once)
    near(found.itl, ours.itl_ms, relative=0.1, late_ms=0.0)
    near(found.tpot, ours.tpot_ms, relative=0.1, late_ms=5.0 / 12 if ours.definition == "guidellm" else 0.0)


def chosen(folder: Path, answers: Sequence[Answer]) -> list[Exchange]:
    """The front end's exchanges of those requests, and that both count the same tokens."""
    known = served_exchanges(folder)
    found = [known[answer.name] for answer in answers]
    assert [exchange.tokens for exchange in found] == [answer.tokens for answer in answers]
    return found


def test_figures_of_fixed_rates_and_of_a_sweep_agree_with_the_report(
    serving: Loaded, soak_note: Callable[[str], None]
) -> None:
    """Known faults "Serving" 1, 10, 13, 14, 19: the first chunk is the first token, failures are in no latency,
    usage is what was emitted, one-token answers have no gap, and each definition is its own."""

    async def load() -> tuple[list[tuple[float, list[Answer]]], list[Answer], list[Answer], list[Answer]]:
        async with Guidellm(serving.root) as client:
            fixed = await at(constant_moments(6.0, 12), client.ask, PROMPT, 12)
            steps = await sweep(client.ask, PROMPT, 12, size=4, requests=6)
            fixed += [await client.ask("one", 1), await client.ask("too long", 100_000)]
        async with VllmBench(serving.root) as bench:
            text = await at(gamma_moments(6.0, 12, seed=1), bench.ask, PROMPT, 12)
            text += [await bench.ask("one", 1), await bench.ask("too long", 100_000)]
        async with VllmBench(serving.root, chat=True) as bench:
            chats = await at(gamma_moments(float("inf"), 6, seed=1), bench.ask, PROMPT, 12)
        return steps, fixed, text, chats

    steps, fixed, text, chats = asyncio.run(load())
    assert serving.stop() == 0
    assert [answer.error for answer in fixed if answer.error] == [fixed[-1].error]
    assert "400 Bad Request" in fixed[-1].error
    assert [answer.error for answer in text if answer.error] == ["Bad Request"]

    for answers in (fixed[:-1], *(answers for _, answers in steps)):
        agree(guidellm_figures(answers), latencies(chosen(serving.folder, answers), "guidellm"))
    slow, fast, *between = [rate for rate, _ in steps]
    assert slow < between[0] < between[1] == pytest.approx(fast)
    for answers, at_once in ((text[:-1], 1), (chats, len(chats))):
        agree(vllm_figures(answers, finish=False), latencies(chosen(serving.folder, answers), "vllm"), at_once)

    # As the tool prints it, a text completion has one more gap, to the chunk that says how it ended.
    mine, theirs = vllm_figures(text[:-1], finish=False), vllm_figures(text[:-1])
    gaps = 12 * 11
    assert theirs.itl[0] == pytest.approx(mine.itl[0] * gaps / (gaps + 13), rel=0.05)
    assert vllm_figures(chats) == vllm_figures(chats, finish=False)
    swept = [answer for _, answers in steps for answer in answers]
    for line in report_agrees(serving.folder, [*serving.recorded, *fixed, *swept, *text, *chats]):
        soak_note(line)


def report_agrees(folder: Path, answers: Sequence[Answer]) -> list[str]:
    """summary.json pools all of them, by every tool's definition, labelled as the front end's; a line for each."""
    lines = []
    system = read_summary((folder / "summary.json").read_bytes()).systems["blink"]
    whole = [answer for answer in answers if not answer.error]
    assert system.requests.completed == len(whole)
    assert system.requests.failed == len(answers) - len(whole)
    for tool, figures in (("vllm", vllm_figures(whole, finish=False)), ("guidellm", guidellm_figures(whole))):
        ours = system.definitions[tool]
        agree(figures, ours)
        assert ours.ttft_ms.definition == f"front end, {tool}: first chunk - sent"
        pairs = (("TTFT p50", figures.ttft[1], ours.ttft_ms.p50), ("ITL mean", figures.itl[0], ours.itl_ms.mean),
                 ("TPOT mean", figures.tpot[0], ours.tpot_ms.mean))  # fmt: skip
        told = ", ".join(f"{name} {theirs / DILATION:.2f} / {mine:.2f}" for name, theirs, mine in pairs)
        lines.append(f"{len(whole)} requests as {tool} reckons, client / report in true ms: {told}")
    return lines


@pytest.mark.parametrize("client", [Guidellm, VllmBench])
def test_what_breaks_off_in_mid_stream_is_errored_and_in_no_latency(
    tmp_path: Path, client: type[Guidellm] | type[VllmBench]
) -> None:
    """Known fault "Serving" 10. The server is stopped while it streams; vLLM's client reads over the error event."""
    server = Serving(tmp_path, "--on", "sim")

    async def load() -> list[Answer]:
        async with client(server.root) as opened:
            whole = await opened.ask(PROMPT, 4)
            cut = asyncio.ensure_future(opened.ask(PROMPT, 4000))
            await asyncio.sleep(0.5)
            server.interrupt()
            return [whole, await cut]

    whole, cut = asyncio.run(load())
    assert server.ended() == 0
    assert (whole.error, whole.tokens) == ("", 4)
    assert cut.chunks
    assert cut.error
    for reckon in (guidellm_figures, vllm_figures):
        found = reckon([whole, cut])
        assert (found.completed, found.errored) == (1, 1)
        assert found.ttft == reckon([whole]).ttft
