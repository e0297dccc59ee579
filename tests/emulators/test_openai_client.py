"""The official `openai` client, unmodified, against the real front end, scheduler and device in one process."""

import asyncio
import time

import openai
import pytest

MODEL = "llama-3-8b"
MESSAGES = [{"role": "user", "content": "Say something about the sea."}]
USAGE = {"include_usage": True}
LONG = {"ignore_eos": True}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as found:
        yield found


def asynchronously(server, use):
    async def run():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
            return await use(client)

    return asyncio.run(run())


def test_models(client):
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "looplane")
    assert model.max_model_len == 8192
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_whole_chat(client):
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=12, extra_body=LONG)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.role) == ("length", "assistant")
    assert choice.message.content
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_streamed_chat_is_the_whole_chat_in_pieces(client):
    said = {"model": MODEL, "messages": MESSAGES, "max_completion_tokens": 20, "seed": 5, "extra_body": LONG}
    whole = client.chat.completions.create(**said)
    *chunks, last = client.chat.completions.create(**said, stream=True, stream_options=USAGE)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage == whole.usage
    assert len({chunk.id for chunk in chunks} | {last.id}) == 1


def test_text_completions_of_several_prompts_and_choices(client):
    answer = client.completions.create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=4, extra_body=LONG)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all(choice.text and choice.finish_reason == "length" for choice in answer.choices)
    assert answer.usage.completion_tokens == 16


def test_streamed_choices_are_kept_apart(client):
    stream = client.completions.create(
        model=MODEL, prompt="one", n=3, max_tokens=5, stream=True, seed=1, extra_body=LONG
    )
    texts, reasons = {}, {}
    for chunk in stream:
        (choice,) = chunk.choices
        assert choice.index not in reasons
        texts[choice.index] = texts.get(choice.index, "") + choice.text
        if choice.finish_reason:
            reasons[choice.index] = choice.finish_reason
    assert reasons == {0: "length", 1: "length", 2: "length"}
    again = client.completions.create(
        model=MODEL, prompt="one", n=3, max_tokens=5, seed=1, extra_body=LONG
    )
    assert [choice.text for choice in again.choices] == [texts[index] for index in range(3)]


def test_same_seed_same_text_other_seed_other_text(client):
    def text(seed):
        answer = client.completions.create(
            model=MODEL, prompt="The", seed=seed, max_tokens=24, temperature=1.5, extra_body=LONG
        )
        return answer.choices[0].text

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(4)}) > 1


def test_token_ids_as_a_prompt_are_their_text(client, vocabulary):
    said = {"model": MODEL, "max_tokens": 6, "seed": 3, "extra_body": LONG}
    ids = client.completions.create(prompt=vocabulary.encode("Alice was beginning"), **said)
    text = client.completions.create(prompt="Alice was beginning", **said)
    assert ids.choices[0].text == text.choices[0].text
    assert ids.usage == text.usage


def test_token_ids_are_served_as_they_are(client, vocabulary):
    """These spell a text that the tokeniser would cut in fewer pieces; a special token has no text at all."""
    ids = [71, 70, 77, 77, 80]
    spelt = b"".join(map(vocabulary.token_bytes, ids)).decode()
    assert len(vocabulary.encode(spelt)) == 3
    said = {"model": MODEL, "max_tokens": 2, "extra_body": LONG}
    assert client.completions.create(prompt=ids, **said).usage.prompt_tokens == 5
    assert client.completions.create(prompt=[*ids, vocabulary.eos], **said).usage.prompt_tokens == 6
    assert client.completions.create(prompt=[ids, [vocabulary.eos]], **said).usage.prompt_tokens == 6
    assert client.completions.create(prompt=spelt, **said).usage.prompt_tokens == 3


@pytest.mark.parametrize("place", [0, 2])
def test_token_id_that_there_is_not_is_a_bad_request(client, vocabulary, place):
    ids = [71, 70]
    ids.insert(place, vocabulary.size)
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=ids, max_tokens=2)
    assert caught.value.param == "prompt"
    assert str(vocabulary.size) in caught.value.message


def test_stop_string_ends_the_answer(client):
    said = {"model": MODEL, "prompt": "The", "max_tokens": 40, "seed": 2, "extra_body": LONG}
    whole = client.completions.create(**said).choices[0].text
    stop = whole[len(whole) // 2 :][:3]
    cut = client.completions.create(**said, stop=stop)
    assert cut.choices[0].text == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens < 40


def test_one_token_answer(client):
    chunks = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert sum(chunk.choices[0].finish_reason is not None for chunk in chunks) == 1


def test_an_answer_may_end_by_itself(client):
    answer = client.completions.create(model=MODEL, prompt="Alice", max_tokens=2000, temperature=0.7, seed=1)
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert 1 <= answer.usage.completion_tokens <= 2000


def test_async_client(server):
    async def use(client):
        whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, seed=1)
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=8, seed=1, stream=True, stream_options=USAGE
        )
        pieces = [chunk async for chunk in stream]
        completion = await client.completions.create(model=MODEL, prompt="a", max_tokens=3)
        completions = [chunk async for chunk in await client.completions.create(model=MODEL, prompt="a", stream=True)]
        return await whole, pieces, completion, completions

    whole, pieces, completion, completions = asynchronously(server, use)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces[:-1]) == whole.choices[0].message.content
    assert pieces[-1].usage == whole.usage
    assert completion.object == "text_completion"
    assert completions[-1].choices[0].finish_reason


def test_many_at_once(server):
    async def use(client):
        async def one(number):
            stream = await client.completions.create(
                model=MODEL, prompt=f"number {number}", max_tokens=12, stream=True, stream_options=USAGE,
                extra_body=LONG,
            )  # fmt: skip
            return [chunk async for chunk in stream][-1].usage.completion_tokens

        return await asyncio.gather(*(one(number) for number in range(24)))

    assert asynchronously(server, use) == [12] * 24


@pytest.mark.parametrize(
    ("said", "error", "code"),
    [
        ({"model": "gpt-5"}, openai.NotFoundError, "model_not_found"),
        ({"max_tokens": 0}, openai.BadRequestError, None),
        ({"max_tokens": 8192}, openai.BadRequestError, "context_length_exceeded"),
        ({"prompt": "word " * 9000}, openai.BadRequestError, "context_length_exceeded"),
        ({"temperature": 3}, openai.BadRequestError, None),
        ({"prompt": [10**9]}, openai.BadRequestError, None),
        ({"logprobs": 1}, openai.BadRequestError, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_stream(client, said, error, code, stream):
    with pytest.raises(error) as caught:
        client.completions.create(**{"model": MODEL, "prompt": "a", "stream": stream, **said})
    assert caught.value.code == code
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


def test_key_is_asked_for_where_one_is_set(start_server):
    server = start_server(api_key="sk-right", slots=16, max_batch=4, input_arena_tokens=65536, token_arena_tokens=65536)
    for key in ("sk-wrong", "sk-right-and-more"):
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client, pytest.raises(
            openai.AuthenticationError
        ) as caught:
            client.models.list()
        assert key not in str(caught.value)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-right", max_retries=0) as client:
        assert client.models.list().data


FOUR = {
    "blink": {"slots": 4, "max_batch": 4, "input_arena_tokens": 65536, "token_arena_tokens": 65536},
    "host-driven": {"queue_limit": 4, "max_batch": 4},
}


@pytest.mark.parametrize("kind", FOUR)
def test_full_server_is_a_rate_limit(start_server, kind):
    """A full ring, or as many requests as a host-driven server takes."""
    server = start_server(kind=kind, **FOUR[kind])

    async def use(client):
        streams = [
            await client.completions.create(
                model=MODEL, prompt="a", max_tokens=4000, stream=True, extra_body=LONG
            )
            for _ in range(4)
        ]
        for stream in streams:
            await anext(stream)
        with pytest.raises(openai.RateLimitError) as caught:
            await client.completions.create(model=MODEL, prompt="a", max_tokens=1)
        for stream in streams:
            await stream.close()
        for _ in range(200):
            try:
                return caught.value, await client.completions.create(model=MODEL, prompt="a", max_tokens=1)
            except openai.RateLimitError:
                await asyncio.sleep(0.02)
        raise AssertionError("the slots of those who left were not freed")

    error, answer = asynchronously(server, use)
    assert error.response.headers["retry-after"] == "1"
    assert error.code == "rate_limit_exceeded"
    assert answer.usage.completion_tokens == 1
    # The log is written every 20 ms only.
    for _ in range(200):
        gone = sum(record.event.__struct_config__.tag == "request.abandoned" for record in server.events(server.front))
        if gone == 4:
            break
        time.sleep(0.02)
    assert gone == 4


def test_what_breaks_off_in_mid_stream_is_an_error(start_server):
    server = start_server(slots=4, max_batch=4, input_arena_tokens=65536, token_arena_tokens=65536)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.completions.create(
            model=MODEL, prompt="a", max_tokens=4000, stream=True, extra_body=LONG
        )
        next(stream)
        server.call(lambda paced: paced.port.close())
        with pytest.raises(openai.APIError) as caught:
            list(stream)
        assert caught.value.code == "unavailable"
        with pytest.raises(openai.InternalServerError) as refused:
            client.completions.create(model=MODEL, prompt="a")
        assert refused.value.status_code == 503
