"""Load generators that speak as guidellm 0.8 and as `vllm bench serve` 0.33 do, and reckon as they do.

What they send and demand follows design serving.md §4.1; how they reckon, §3. `guidellm` is httpx: requests at fixed
gaps, any line that starts with `data:`, the first chunk with text is the first token. `vllm` is aiohttp: gamma gaps
stretched to the exact rate, events split at empty lines. In a text completion any chunk with choices is a token's,
so the one with the finish reason counts as a gap; in a chat only those with content. Neither knows Looplane. Times
are wall seconds.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
import httpx
import numpy as np

GUIDELLM_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "keep-alive",
    "User-Agent": "python-httpx/0.28.1",
}


@dataclass
class Answer:
    """One request as its client saw it."""

    name: str = ""
    """The request's id at the server: the answer's `id` without its prefix."""
    sent: float = 0.0
    chunks: list[float] = field(default_factory=list)
    """When chunks came that count as tokens, by the client's own rule."""
    finish: float | None = None
    """When the chunk with the finish reason came, if the client counts it as a gap."""
    text: str = ""
    prompt_tokens: int = 0
    tokens: int = 0
    error: str = ""

    @property
    def last(self) -> float:
        """The end of its latency: its last chunk that counts."""
        return self.finish if self.finish is not None else self.chunks[-1]


@dataclass(frozen=True)
class Figures:
    """Latencies in wall milliseconds, as a tool prints them: (mean, median)."""

    ttft: tuple[float, float]
    itl: tuple[float, float]
    tpot: tuple[float, float]
    completed: int
    errored: int


# --- guidellm -----------------------------------------------------------------------------------------------------


def guidellm_chat(model: str, prompt: str, tokens: int) -> dict[str, object]:
    """The body of its chat call."""
    content = [{"type": "text", "text": prompt}]
    return {
        **_guidellm_stream(model), "max_completion_tokens": tokens, "ignore_eos": True,
        "messages": [{"role": "user", "content": content}],
    }  # fmt: skip


def guidellm_text(model: str, prompt: str, tokens: int) -> dict[str, object]:
    """The body of its text completion call."""
    return {**_guidellm_stream(model), "max_tokens": tokens, "ignore_eos": True, "prompt": prompt}


def _guidellm_stream(model: str) -> dict[str, object]:
    options = {"include_usage": True, "continuous_usage_stats": True}
    return {"model": model, "stream": True, "stream_options": options}


class Guidellm:
    """Health, then models, then requests; use as an asynchronous context."""

    def __init__(self, target: str, *, chat: bool = True) -> None:
        self._target = target.removesuffix("/v1")
        self._path = "/v1/chat/completions" if chat else "/v1/completions"
        self._body = guidellm_chat if chat else guidellm_text
        self._http = httpx.AsyncClient(headers=GUIDELLM_HEADERS, timeout=60, limits=httpx.Limits(max_connections=None))
        self._model = ""

    async def __aenter__(self) -> Guidellm:
        (await self._http.get(f"{self._target}/health")).raise_for_status()
        models = await self._http.get(f"{self._target}/v1/models")
        self._model = models.raise_for_status().json()["data"][0]["id"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, prompt: str, tokens: int) -> Answer:
        """One request. Whatever goes wrong makes it an errored one."""
        answer = Answer(sent=time.time())

        async def trace(event: str, _: object) -> None:
            if event.endswith(".send_request_headers.started"):
                answer.sent = time.time()

        body = self._body(self._model, prompt, tokens)
        url = f"{self._target}{self._path}"
        try:
            async with self._http.stream("POST", url, json=body, extensions={"trace": trace}) as response:
                response.raise_for_status()
                async for line in response.aiter_lines():
                    if _guidellm_line(answer, line.strip()):
                        break
            if not answer.text.strip() and not answer.tokens:
                raise ValueError("no text and no usage")
        except (httpx.HTTPError, ValueError) as error:
            answer.error = f"{type(error).__name__}: {error}"
        return answer


def _guidellm_line(answer: Answer, line: str) -> bool:
    """Takes one line of a stream; True at its end."""
    if not line.startswith("data:"):
        return False
    data = line.removeprefix("data:").strip()
    if data == "[DONE]":
        return True
    moment = time.time()
    chunk = json.loads(data)
    if "error" in chunk:
        raise ValueError(str(chunk["error"]))
    answer.name = answer.name or chunk["id"].partition("-")[2]
    choice = chunk["choices"][0] if chunk["choices"] else {}
    text = choice.get("text") or choice.get("delta", {}).get("content")
    if text:
        answer.text += text
        answer.chunks.append(moment)
    if usage := chunk.get("usage"):
        answer.tokens, answer.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
    return False


def guidellm_figures(answers: Sequence[Answer]) -> Figures:
    """Percentiles are observed values; ITL has weight n - 1, TPOT weight n and the TTFT in it."""
    good = [answer for answer in answers if not answer.error]
    itl = [((a.last - a.chunks[0]) / (a.tokens - 1), a.tokens - 1) for a in good if a.tokens > 1]
    return Figures(
        _weighted([(a.chunks[0] - a.sent, 1) for a in good]),
        _weighted(itl),
        _weighted([((a.last - a.sent) / a.tokens, a.tokens) for a in good]),
        len(good), len(answers) - len(good),
    )  # fmt: skip


def _weighted(samples: Sequence[tuple[float, int]]) -> tuple[float, float]:
    values, weights = np.array(sorted(samples), dtype=float).T
    shares = np.cumsum(weights / weights.sum())
    return 1e3 * float(np.average(values, weights=weights)), 1e3 * float(values[np.searchsorted(shares, 0.5)])


# --- vllm bench serve ---------------------------------------------------------------------------------------------


def vllm_text(model: str, prompt: str, tokens: int) -> dict[str, object]:
    """The body of its `--backend vllm` (or openai) call, with --ignore-eos."""
    return {
        "model": model, "prompt": prompt, "repetition_penalty": 1.0, "max_tokens": tokens, "logprobs": None,
        "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True,
    }  # fmt: skip


def vllm_chat(model: str, prompt: str, tokens: int) -> dict[str, object]:
    """The body of its `--backend openai-chat` call, with --ignore-eos."""
    return {
        "model": model, "messages": [{"role": "user", "content": [{"type": "text", "text": prompt}]}],
        "max_completion_tokens": tokens, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True,
    }  # fmt: skip


class VllmBench:
    """Models, a call of the tokeniser, the metrics, then requests; use as an asynchronous context."""

    def __init__(self, root: str, *, chat: bool = False) -> None:
        self._root = root
        self._url = root + ("/v1/chat/completions" if chat else "/v1/completions")
        self._body = vllm_chat if chat else vllm_text
        self._content_type = {"Content-Type": "application/json"} if chat else {}
        self._model = ""
        self._sent = 0
        self.prefix = f"bench-{random.getrandbits(32):08x}-"

    async def __aenter__(self) -> VllmBench:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, force_close=False), trust_env=True
        )
        async with self._http.get(f"{self._root}/v1/models") as response:
            self._model = (await response.json())["data"][0]["id"]
        probe = {"model": self._model, "prompt": "ready", "add_special_tokens": False}
        async with self._http.post(f"{self._root}/tokenize", json=probe) as response:
            assert (await response.json())["count"] > 0
        async with self._http.get(f"{self._root}/metrics") as response:
            assert response.status == 200
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def ask(self, prompt: str, tokens: int) -> Answer:
        """One request. An answer other than 200 shows as its reason phrase, an exception as its text."""
        headers = {**self._content_type, "x-request-id": f"{self.prefix}{self._sent}"}
        self._sent += 1
        answer = Answer(name=headers["x-request-id"], sent=time.perf_counter())
        body = self._body(self._model, prompt, tokens)
        try:
            async with self._http.post(self._url, json=body, headers=headers) as response:
                if response.status != 200:
                    answer.error = response.reason or "no reason"
                    return answer
                async for message in _events(response):
                    _vllm_message(answer, message)
            if not answer.chunks:
                answer.error = "no chunk with choices came"
        except (aiohttp.ClientError, ValueError) as error:
            answer.error = f"{type(error).__name__}: {error}"
        return answer


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """What arrived at a time is stripped and split at empty lines; a rest that is whole JSON is taken at once."""
    rest = ""
    async for arrived in response.content.iter_any():
        *whole, rest = (rest + arrived.decode().strip()).split("\n\n")
        for message in whole:
            yield message.strip()
        data = rest.removeprefix("data: ")
        if data == "[DONE]" or _is_json(data):
            yield rest
            rest = ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _vllm_message(answer: Answer, message: str) -> None:
    data = message.removeprefix("data: ")
    if not data or data.startswith(":") or data == "[DONE]":
        return
    moment = time.perf_counter()
    chunk = json.loads(data)
    choice = (chunk.get("choices") or [None])[0]
    if choice and (choice.get("delta", {}).get("content") or "text" in choice):
        answer.text += choice["text"] if "text" in choice else choice["delta"]["content"]
        if choice["finish_reason"]:
            answer.finish = moment
        else:
            answer.chunks.append(moment)
    elif usage := chunk.get("usage"):
        answer.tokens, answer.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]


def vllm_figures(answers: Sequence[Answer], *, finish: bool = True) -> Figures:
    """Linear percentiles; ITL is every gap of all requests in one list, with the one to the finish chunk, if any."""
    good = [answer for answer in answers if not answer.error]
    ends = [answer.last if finish else answer.chunks[-1] for answer in good]
    gaps: list[float] = []
    for answer in good:
        extra = [answer.finish] if finish and answer.finish is not None else []
        gaps += np.diff([*answer.chunks, *extra]).tolist()
    pairs = list(zip(good, ends, strict=True))
    return Figures(
        _linear([answer.chunks[0] - answer.sent for answer in good]),
        _linear(gaps),
        _linear([(end - answer.chunks[0]) / (answer.tokens - 1) for answer, end in pairs if answer.tokens > 1]),
        len(good), len(answers) - len(good),
    )  # fmt: skip


def _linear(values: Sequence[float]) -> tuple[float, float]:
    return 1e3 * float(np.mean(values)), 1e3 * float(np.percentile(values, 50))


# --- schedules ----------------------------------------------------------------------------------------------------

Ask = Callable[[str, int], Awaitable[Answer]]


def constant_moments(rate: float, requests: int) -> list[float]:
    """guidellm's fixed rate: the first request one gap after the start."""
    return [(number + 1) / rate for number in range(requests)]


def gamma_moments(rate: float, requests: int, seed: int, burstiness: float = 1.0) -> list[float]:
    """vLLM's: gamma gaps, stretched so that the last moment is exactly requests / rate; all at once if infinite."""
    if rate == float("inf"):
        return [0.0] * requests
    gaps = np.random.default_rng(seed).gamma(burstiness, 1 / (rate * burstiness), requests)
    moments = np.cumsum(gaps)
    return (moments * (requests / rate) / moments[-1]).tolist()


async def at(moments: Sequence[float], ask: Ask, prompt: str, tokens: int) -> list[Answer]:
    """Sends at these moments, open loop: no request waits for another."""
    start = time.time()

    async def one(number: int, moment: float) -> Answer:
        await asyncio.sleep(start + moment - time.time())
        return await ask(f"{number} {prompt}", tokens)

    return await asyncio.gather(*(one(number, moment) for number, moment in enumerate(moments)))


async def sweep(ask: Ask, prompt: str, tokens: int, *, size: int, requests: int) -> list[tuple[float, list[Answer]]]:
    """guidellm's sweep: one by one, all at once, then fixed rates between the two that were reached."""
    start = time.time()
    alone = [await ask(f"{number} {prompt}", tokens) for number in range(requests)]
    slow = requests / (time.time() - start)
    start = time.time()
    together = await at([0.0] * requests, ask, prompt, tokens)
    fast = requests / (time.time() - start)
    rates = [float(rate) for rate in np.linspace(slow, fast, size - 1)[1:]]
    between = [(rate, await at(constant_moments(rate, requests), ask, prompt, tokens)) for rate in rates]
    return [(slow, alone), (fast, together), *between]
