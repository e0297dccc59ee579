"""The completions client against a real server, and against servers that break the protocol in every way."""

import asyncio
import contextlib

import pytest

from emulators.completions_client import UNKNOWN_TOKEN, CompletionsClient, wait_until_ready
from testbed.serving.requests import Refused, Request, Sampling, Tokens

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
USAGE = '"usage":{"prompt_tokens":3,"completion_tokens":%d}'


def event(text, tokens, reason="null"):
    return f'data: {{"choices":[{{"text":"{text}","finish_reason":{reason}}}],{USAGE % tokens}}}\n\n'.encode()


def ask(url, *requests, timeout_s=30.0):
    """Sends all requests at once; what was put, by name."""

    async def run():
        answers = {request.name: [] for request in requests}
        async with CompletionsClient(url, timeout_s=timeout_s) as client:
            await asyncio.gather(*(client.send(request, answers[request.name].append) for request in requests))
        return answers

    return asyncio.run(run())


def ask_broken(answer, timeout_s=5.0):
    """One request to a server that answers every connection with `answer` and closes it (None: says nothing)."""

    ended = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()  # until the client gives up
        else:
            writer.write(answer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    async def run():
        put = []
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with CompletionsClient(f"http://127.0.0.1:{port}", timeout_s=timeout_s) as client:
                await client.send(Request("r", "a", 4), put.append)
            await ended.wait()
        return put

    return asyncio.run(run())


def test_answers_arrive_token_by_token(server):
    request = Request("client-1", "Once upon a time", 12, Sampling(seed=3))
    messages = ask(server.url, request)["client-1"]
    assert all(isinstance(message, Tokens) for message in messages)
    assert [message.reason for message in messages] == [None] * (len(messages) - 1) + ["length"]
    assert sum(len(message.tokens) for message in messages) == 12
    assert {token for message in messages for token in message.tokens} == {UNKNOWN_TOKEN}
    assert all(len(message.texts) == len(message.tokens) for message in messages)
    assert messages[-1].prompt_tokens == 4


def test_many_requests_share_nothing(server):
    requests = [Request(f"client-many-{number}", "Say", 4 + number % 3) for number in range(20)]
    answers = ask(server.url, *requests)
    assert [sum(len(m.tokens) for m in answers[r.name]) for r in requests] == [r.max_tokens for r in requests]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request("r", "a", 9000), "http_400 context_length_exceeded"),
        (Request("r", "a", 0), "http_400"),
    ],
)
def test_refusals_are_named(server, request_, reason):
    (refused,) = ask(server.url, request_)["r"]
    assert isinstance(refused, Refused)
    assert refused.reason == reason
    assert refused.detail


def test_connection_that_nobody_takes():
    (refused,) = ask("http://127.0.0.1:9", Request("r", "a", 1))["r"]
    assert refused.reason == "connection_failed"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "timeout"),
        (b"", "connection_failed"),
        (b"garbage\r\n\r\n", "connection_failed"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad", "http_500"),
        (b'HTTP/1.1 429 No\r\nConnection: close\r\n\r\n{"error":{"message":"m","code":"slow"}}', "http_429 slow"),
        (HEAD, "broken_off"),
        (HEAD + event("a", 1), "broken_off"),
        (HEAD + event("a", 1, '"stop"'), "broken_off"),
        (HEAD + event("a", 1) + b"data: [DONE]\n\n", "bad_stream"),
        (HEAD + event("a", 1, '"stop"') + event("b", 2, '"stop"'), "bad_stream"),
        (HEAD + b"data: {\n\n", "bad_stream"),
        (HEAD + b'data: {"choices":[{"text":"a"}]}\n\n', "bad_stream"),
        (HEAD + event("a", 2) + event("b", 1), "bad_usage"),
        (HEAD + event("a", 1, '"stop"') + b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
         "bad_usage"),
        (HEAD + event("a", 1) + b'data: {"error":{"message":"gone","code":"internal"}}\n\n', "internal"),
        (HEAD + event("a", 1, '"stop"') + b"data: [DONE]\n\n" + event("b", 2), "bad_stream"),
    ],
)  # fmt: skip
def test_every_broken_answer_is_one_failure(answer, reason):
    put = ask_broken(answer, timeout_s=0.5 if answer is None else 5.0)
    assert isinstance(put[-1], Refused)
    assert put[-1].reason == reason
    assert all(isinstance(message, Tokens) for message in put[:-1])


def test_chunk_with_several_tokens_counts_them():
    answer = HEAD + event("abc", 3) + event("", 5) + event("", 5, '"length"') + b"data: [DONE]\n\n"
    put = ask_broken(answer)
    assert [len(message.tokens) for message in put] == [3, 2, 0]
    assert put[0].texts == ("", "", "abc")
    assert put[-1].reason == "length"


def test_readiness_is_waited_for(server):
    asyncio.run(wait_until_ready(server.url, timeout_s=10))
    with pytest.raises(TimeoutError):
        asyncio.run(wait_until_ready("http://127.0.0.1:9", timeout_s=0.3))
