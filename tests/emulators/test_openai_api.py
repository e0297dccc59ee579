"""The API on the wire: headers, events a write each, what load generators send and parse, clients that go away."""

import json
import re
import select
import socket
import time

import httpx
import pytest

from emulators import sse
from emulators.openai_api import VERSION

MODEL = "llama-3-8b"


@pytest.fixture(scope="module")
def http(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def connect(server, body, *, path="/v1/completions", headers=""):
    """A connection on which one streamed call was made; whoever takes it reads raw bytes."""
    data = json.dumps({"model": MODEL, "stream": True, "ignore_eos": True, **body}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\nx-request-id: raw-1\r\n{headers}\r\n"
    connection.sendall(head.encode() + data)
    return connection


def read_all(connection):
    """Every `recv` of a connection up to the end of its chunked body."""
    received = []
    while not b"".join(received).endswith(b"0\r\n\r\n"):
        received.append(connection.recv(65536))
        assert received[-1], b"".join(received)
    return received


def body_chunks(raw):
    """The chunks of a chunked body, as the server wrote them."""
    _, _, rest = raw.partition(b"\r\n\r\n")
    chunks = []
    while rest != b"0\r\n\r\n":
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        chunks.append(rest[:length])
        assert rest[length : length + 2] == b"\r\n"
        rest = rest[length + 2 :]
    return chunks


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_no_byte_before_the_first_token(start_server):
    """A prefill takes 6 ms of true time and more, here 1.2 s: until then there are no headers and no role chunk."""
    server = start_server(dilation=200.0, slots=16, max_batch=4, input_arena_tokens=65536, token_arena_tokens=65536)
    with connect(server, {"prompt": "a", "max_tokens": 1}) as connection:
        assert select.select([connection], [], [], 0.5)[0] == []
        first = json.loads(body_chunks(b"".join(read_all(connection)))[0][6:])
    assert first["choices"][0]["text"]


def test_headers_of_a_stream_and_one_event_a_write(server):
    with connect(server, {"prompt": "a", "max_tokens": 12, "stream_options": {"include_usage": True}}) as connection:
        received = read_all(connection)
    head, _, _ = received[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    headers = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines[1:]}
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-request-id"] == "raw-1"
    assert "content-encoding" not in headers
    chunks = body_chunks(b"".join(received))
    assert chunks[-1] == sse.DONE
    for chunk in chunks:
        assert chunk.startswith(b"data: ")
        assert chunk.endswith(b"\n\n")
        assert chunk.count(b"\n") == 2
        assert chunk.isascii()
    assert len(received) > 1, "the first token must not wait for the last"


def test_golden_bytes_of_a_served_stream(server):
    said = {"prompt": "a", "max_tokens": 2, "seed": 1, "temperature": 0, "stream_options": {"include_usage": True}}
    with connect(server, said) as connection:
        chunks = body_chunks(b"".join(read_all(connection)))
    created = re.search(rb'"created":(\d+)', chunks[0])[1]
    head = b'data: {"id":"cmpl-raw-1","object":"text_completion","created":%s,"model":"llama-3-8b","choices":['
    head %= created
    texts = [json.loads(chunk[6:])["choices"][0]["text"] for chunk in chunks[:2]]
    token = b'{"index":0,"text":%s,"logprobs":null,"finish_reason":null}],"usage":null}\n\n'
    expected = [head + token % json.dumps(text).encode() for text in texts]
    assert chunks == [
        *expected,
        head + b'{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],"usage":null}\n\n',
        head + b'],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,'
        b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n',
        b"data: [DONE]\n\n",
    ]
    assert all(texts)


def vllm_bench(server, body):
    """What vLLM's serving benchmark makes of a stream, rewritten: strips what arrived, splits it at empty lines, and
    takes any chunk with choices as a token's time; usage comes with empty choices."""
    times, text, tokens, done = [], "", None, False
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        for arrived in response.iter_raw():
            for message in arrived.decode("utf-8").strip().split("\n\n"):
                if message.startswith(":") or not message:
                    continue
                assert message.startswith("data: "), message
                data = message.removeprefix("data: ")
                if data == "[DONE]":
                    done = True
                    continue
                chunk = json.loads(data)
                if choices := chunk.get("choices"):
                    times.append(time.monotonic())
                    text += choices[0].get("text") or ""
                elif usage := chunk.get("usage"):
                    tokens = usage["completion_tokens"]
    assert done
    return times, text, tokens


@pytest.mark.parametrize("length", [1, 2, 17])
def test_vllm_bench(server, length):
    body = {
        "model": MODEL, "prompt": "once", "temperature": 0.0, "repetition_penalty": 1.0, "max_tokens": length,
        "logprobs": None, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True,
    }  # fmt: skip
    times, text, tokens = vllm_bench(server, body)
    assert tokens == length
    assert len(times) <= length + 1
    assert text


def test_guidellm(http):
    """Its calls in order: health, models, chats with content as a list of parts and usage on every chunk."""
    assert http.get("/health").status_code == 200
    model = http.get("/v1/models").json()["data"][0]["id"]
    body = {
        "model": model, "stream": True, "max_completion_tokens": 9, "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me."}]}],
        "some": {"unknown": "field"},
    }  # fmt: skip
    usages, text = [], ""
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        chunk = json.loads(line.removeprefix("data: "))
        usages.append(chunk["usage"])
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
    assert text
    counts = [usage["completion_tokens"] for usage in usages]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 9)
    assert all(usage["prompt_tokens_details"] == {"cached_tokens": 0} for usage in usages)


def test_request_id_is_echoed_or_made(http):
    assert http.get("/version", headers={"x-request-id": "mine-7"}).headers["x-request-id"] == "mine-7"
    for bad in ("a b", "x" * 200, "\xe9"):
        made = http.get("/version", headers={b"x-request-id": bad.encode("latin-1")}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)


def test_one_name_twice_at_a_time_is_two_requests(server):
    said = {"prompt": "a", "max_tokens": 40}
    with connect(server, said) as one, connect(server, said) as two:
        first, second = (body_chunks(b"".join(read_all(connection))) for connection in (one, two))
    names = {json.loads(chunks[0][6:])["id"] for chunks in (first, second)}
    assert names == {"cmpl-raw-1", "cmpl-raw-1~2"}
    assert len(first) == len(second)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/health", 405),
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/completions", 400),
        ("POST", "/tokenize", 400),
        ("POST", "/detokenize", 400),
    ],
)
def test_every_refusal_is_openais_json(http, method, path, status):
    answer = http.request(method, path, content=b"{")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"max_tokens": 2**70}, 400),
        ({"seed": -1}, 200),
        ({"seed": 2**70}, 200),
        ({"temperature": 1e-300}, 200),
        ({"temperature": 2, "top_p": 1e-300}, 200),
        ({"prompt": ""}, 400),
        ({"prompt": "\x00\u2028\ufffd🙂"}, 200),
        ({"prompt": "<｜end▁of▁sentence｜>"}, 200),
        ({"stop": ["\n", "🙂", " " * 1000]}, 200),
        ({"n": 64}, 200),
    ],
)
def test_values_at_the_edge(http, said, status):
    answer = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2, "ignore_eos": True, **said})
    assert answer.status_code == status, answer.text
    if status == 400:
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_body_that_is_too_large(http):
    answer = http.post("/v1/completions", content=b"x" * (17 << 20))
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_facts(http):
    assert http.get("/version").json() == {"version": VERSION}
    assert http.get("/ping").status_code == http.post("/ping").status_code == 200
    assert http.get("/health").content == b""
    (card,) = http.get("/v1/models").json()["data"]
    assert set(card) == {"id", "object", "created", "owned_by", "root", "parent", "max_model_len"}


@pytest.mark.parametrize("text", ["", "Hello, world", "naïve 🙂 日本語", "a\u2028b"])
def test_tokenize_and_detokenize_are_inverse(http, text):
    found = http.post("/tokenize", json={"model": MODEL, "prompt": text, "add_special_tokens": False}).json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert found["max_model_len"] == 8192
    assert http.post("/detokenize", json={"model": MODEL, "tokens": found["tokens"]}).json() == {"prompt": text}


def test_tokenize_counts_what_a_chat_will_cost(http):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    count = http.post("/tokenize", json={"messages": messages}).json()["count"]
    answer = http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == count
    assert http.post("/tokenize", json={"messages": messages, "prompt": "x"}).status_code == 400
    assert http.post("/detokenize", json={"tokens": [-1]}).json()["error"]["param"] == "tokens"


def metric(http, name):
    found = re.findall(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    return sum(map(float, found))


def test_metrics_add_up(http):
    body = {"prompt": "a", "max_tokens": 5, "ignore_eos": True, "n": 2}
    before = {name: metric(http, name) for name in (
        "looplane_requests_received_total", "vllm:request_success_total", "looplane_requests_failed_total",
        "vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:time_to_first_token_seconds_count",
    )}  # fmt: skip
    assert http.post("/v1/completions", json=body).status_code == 200
    assert http.post("/v1/completions", json={**body, "max_tokens": 9000}).status_code == 400
    wait_until(lambda: http.get("/load").json() == {"server_load": 0})
    more = {name: metric(http, name) - value for name, value in before.items()}
    assert more["looplane_requests_received_total"] == 4
    assert more["vllm:request_success_total"] == 2
    assert more["looplane_requests_failed_total"] == 2
    assert more["vllm:generation_tokens_total"] == 10
    assert more["vllm:prompt_tokens_total"] == 2
    assert more["vllm:time_to_first_token_seconds_count"] == 2
    text = http.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert metric(http, "vllm:num_requests_running") == metric(http, "vllm:num_requests_waiting") == 0
    buckets = re.findall(r'^vllm:time_to_first_token_seconds_bucket\{.*le="([^"]+)"\} (\d+)$', text.text, re.MULTILINE)
    counts = [int(count) for _, count in buckets]
    assert counts == sorted(counts)
    assert buckets[-1][0] == "+Inf"
    assert counts[-1] == metric(http, "vllm:time_to_first_token_seconds_count")


def logged(server, tag):
    return [record.event for record in server.events(server.front) if record.event.__struct_config__.tag == tag]


def abandoned(server):
    return len(logged(server, "request.abandoned"))


@pytest.mark.parametrize("stream", [False, True])
def test_answer_that_a_stop_string_ends_is_served_and_not_abandoned(server, http, stream):
    before = abandoned(server)
    name = f"stopped-{stream}"
    body = {"prompt": "The", "max_tokens": 2000, "stop": ["e"], "ignore_eos": True, "stream": stream}
    answer = http.post("/v1/completions", json=body, headers={"x-request-id": name})
    assert '"finish_reason":"stop"' in answer.text

    def served():
        numbers = {event.request for event in logged(server, "request.arrived") if event.name == name}
        return [event for event in logged(server, "request.served") if event.request in numbers]

    wait_until(served)  # the log is written every 20 ms
    number = served()[0].request
    streamed = sum(event.count for event in logged(server, "tokens.streamed") if event.request == number)
    assert [(event.tokens, event.reason) for event in served()] == [(streamed, "stop")]
    assert streamed < 2000
    assert abandoned(server) == before


@pytest.mark.parametrize("moment", ["before the first token", "in the stream"])
def test_client_that_goes_away_frees_its_slot(server, http, moment):
    before = abandoned(server)
    prompt = "word " * 4000 if moment == "before the first token" else "a"
    connection = connect(server, {"prompt": prompt, "max_tokens": 3000})
    if moment == "in the stream":
        connection.recv(10)
    else:
        wait_until(lambda: http.get("/load").json()["server_load"] == 1)
    connection.close()
    wait_until(lambda: http.get("/load").json() == {"server_load": 0})
    wait_until(lambda: abandoned(server) == before + 1)


def test_not_ready_is_said_everywhere(start_server):
    server = start_server(slots=16, max_batch=4, input_arena_tokens=65536, token_arena_tokens=65536)
    server.call(lambda paced: paced.port.close())
    with httpx.Client(base_url=server.url, timeout=60) as http:
        wait_until(lambda: http.get("/health").status_code == 503)
        for path, body in (("/v1/models", None), ("/ping", None), ("/v1/completions", {"prompt": "a"}),
                           ("/tokenize", {"prompt": "a"})):  # fmt: skip
            answer = http.request("POST" if body else "GET", path, json=body)
            assert answer.status_code == 503, path
            assert answer.json()["error"]["code"] == "not_ready"
            assert answer.headers["retry-after"] == "1"
        assert http.get("/version").status_code == http.get("/metrics").status_code == 200
