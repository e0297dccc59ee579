"""Requests sent to an OpenAI-compatible server over HTTP, and its answers as the messages that machines know.

`POST /v1/completions`, streamed: the prompt goes as it is, without a chat template, so its tokens are those of the
schedule; `continuous_usage_stats` says with each chunk how many tokens have come, so nothing is guessed or
tokenised again (known-faults.md "API / streaming" 13, 14). Whatever goes wrong is a `Refused`, never a hang.

It may not know the clock, the schedule or the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
import msgspec

from emulators import sse
from testbed.serving.requests import Refused, Request, Tokens

UNKNOWN_TOKEN = -1
"""Stands for a token's id, which the API does not tell."""

Put = Callable[[Tokens | Refused], None]


class _Choice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Error(msgspec.Struct):
    message: str = ""
    code: str | int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Error | None = None


_read_chunk = msgspec.json.Decoder(_Chunk).decode


class BrokenAnswer(Exception):
    """The server's answer is not what the API promises. `reason` is a short name for the log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class CompletionsClient:
    """One server, any number of requests at a time. Use as an asynchronous context."""

    def __init__(self, url: str, *, timeout_s: float, api_key: str | None = None) -> None:
        """`url` without /v1; `timeout_s` bounds a whole request, in wall seconds."""
        self._url = f"{url.rstrip('/')}/v1/completions"
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, 10.0))
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> CompletionsClient:
        # No limit of connections: an open-loop client that queues in its own pool would measure itself.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, request: Request, put: Put) -> None:
        """Sends `request` and puts its answer, message by message; the last one has a reason or is `Refused`."""
        try:
            await self._exchange(request, put)
        except BrokenAnswer as broken:
            put(Refused(request.name, broken.reason, broken.detail))
        except TimeoutError as error:
            put(Refused(request.name, "timeout", str(error)))
        except (aiohttp.ClientError, OSError) as error:
            put(Refused(request.name, "connection_failed", f"{type(error).__name__}: {error}"))

    async def _exchange(self, request: Request, put: Put) -> None:
        if self._session is None:
            raise RuntimeError("the client is not open")
        body = msgspec.json.encode(_body(request))
        headers = {"Content-Type": "application/json", "x-request-id": request.name}
        async with self._session.post(self._url, data=body, headers=headers) as response:
            if response.status != 200:
                raise _refusal(response.status, await response.read())
            answer = _Answer(request.name, put)
            decoder = sse.Decoder()
            async for received in response.content.iter_any():
                for data in decoder.feed(received):
                    answer.take(data)
            answer.end()


def _body(request: Request) -> dict[str, object]:
    sampling = request.sampling
    return {
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "ignore_eos": sampling.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _refusal(status: int, body: bytes) -> BrokenAnswer:
    """The error that an answer other than 200 means, by its code if the body has one."""
    try:
        error = _read_chunk(body).error
    except msgspec.MsgspecError:
        error = None
    if error is None:
        return BrokenAnswer(f"http_{status}", body[:200].decode(errors="replace"))
    return BrokenAnswer(f"http_{status} {error.code}" if error.code else f"http_{status}", error.message)


class _Answer:
    """One answer's chunks as messages. The last message waits for the end of the stream, as a cut one is a failure."""

    def __init__(self, name: str, put: Put) -> None:
        self._name = name
        self._put = put
        self._tokens = 0
        self._prompt_tokens = 0
        self._reason: str | None = None
        self._done = False

    def take(self, data: bytes) -> None:
        """One event's data. Raises `BrokenAnswer`."""
        if self._done:
            raise BrokenAnswer("bad_stream", "an event after the end")
        if data == sse.END_OF_DATA:
            if self._reason is None:
                raise BrokenAnswer("bad_stream", "the end came without a finish reason")
            self._done = True
            self._put(Tokens(self._name, (), (), self._prompt_tokens, self._reason))
            return
        try:
            chunk = _read_chunk(data)
        except msgspec.MsgspecError as error:
            raise BrokenAnswer("bad_stream", f"{error}: {data[:200]!r}") from None
        if chunk.error is not None:
            raise BrokenAnswer(str(chunk.error.code or "stream_error"), chunk.error.message)
        self._take_chunk(chunk)

    def end(self) -> None:
        """The connection's end. Raises `BrokenAnswer` if the stream was not whole."""
        if not self._done:
            raise BrokenAnswer("broken_off", f"the stream ended after {self._tokens} tokens")

    def _take_chunk(self, chunk: _Chunk) -> None:
        if chunk.usage is None:
            raise BrokenAnswer("bad_stream", "a chunk without usage, which was asked for")
        fresh = chunk.usage.completion_tokens - self._tokens
        self._prompt_tokens = chunk.usage.prompt_tokens
        text = ""
        for choice in chunk.choices:
            text += choice.text
            if choice.finish_reason is not None:
                if self._reason is not None:
                    raise BrokenAnswer("bad_stream", "two finish reasons")
                self._reason = choice.finish_reason
        if fresh < 0 or (fresh and not chunk.choices):
            raise BrokenAnswer("bad_usage", f"{self._tokens} tokens came, usage says {chunk.usage.completion_tokens}")
        if fresh:
            self._tokens += fresh
            texts = ("",) * (fresh - 1) + (text,)
            self._put(Tokens(self._name, (UNKNOWN_TOKEN,) * fresh, texts, self._prompt_tokens))


async def wait_until_ready(url: str, *, timeout_s: float) -> None:
    """Returns once `GET /health` is answered with 200. Raises TimeoutError after `timeout_s` wall seconds."""
    async with asyncio.timeout(timeout_s), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url.rstrip('/')}/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
