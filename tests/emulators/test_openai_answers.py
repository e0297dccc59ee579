import json

import pytest

from emulators import sse
from emulators.openai_answers import Choice, Heading, Stream, whole
from testbed.serving.requests import Tokens

HEADING = Heading(chat=True, identity="chatcmpl-r1", created=1700000000, model="llama-3-8b")
HEAD = (
    b'data: {"id":"chatcmpl-r1","object":"chat.completion.chunk","created":1700000000,"model":"llama-3-8b",'
    b'"choices":['
)


def tokens(*texts, reason=None, prompt=9):
    return Tokens("r1", tuple(range(len(texts))), texts, prompt, reason)


def stream(messages, *, heading=HEADING, stops=(), usage=True, continuous=False):
    made = Stream(heading, include_usage=usage, continuous_usage=continuous)
    choice = Choice(0, 0, stops)
    events = [event for message in messages for event in made.events(choice, message)]
    return [*events, *made.end([choice])]


def data(event):
    (found,) = sse.Decoder().feed(event)
    return json.loads(found)


def test_golden_bytes_of_a_chat():
    assert stream([tokens("Hel"), tokens("lo", reason="length")]) == [
        HEAD + b'{"index":0,"delta":{"role":"assistant","content":"Hel"},"logprobs":null,"finish_reason":null}],'
        b'"usage":null}\n\n',
        HEAD + b'{"index":0,"delta":{"content":"lo"},"finish_reason":null}],"usage":null}\n\n',
        HEAD + b'{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}\n\n',
        HEAD + b'],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,'
        b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n',
        b"data: [DONE]\n\n",
    ]


def test_golden_bytes_of_a_text_completion_without_usage():
    heading = Heading(chat=False, identity="cmpl-r1", created=1700000000, model="m")
    head = b'data: {"id":"cmpl-r1","object":"text_completion","created":1700000000,"model":"m","choices":['
    assert stream([tokens("Hel", "lo", reason="stop")], heading=heading, usage=False) == [
        head + b'{"index":0,"text":"Hel","logprobs":null,"finish_reason":null}]}\n\n',
        head + b'{"index":0,"text":"lo","logprobs":null,"finish_reason":null}]}\n\n',
        head + b'{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}\n\n',
        b"data: [DONE]\n\n",
    ]


@pytest.mark.parametrize("text", ["\u2028\u2029\x85", "a\nb\r\nc", '"\\</script>', "🙂", "\x00\x1f\x7f", "\ufffd"])
def test_any_text_is_one_line_of_ascii_and_comes_back(text):
    first = stream([tokens(text, reason="length")])[0]
    assert first.isascii()
    assert first.count(b"\n") == 2
    assert b"\r" not in first
    assert data(first)["choices"][0]["delta"]["content"] == text


def test_model_and_name_cannot_break_out_of_the_prefix():
    heading = Heading(chat=True, identity='x"}\n', created=0, model="m\u2028")
    first = data(stream([tokens("a", reason="stop")], heading=heading)[0])
    assert (first["id"], first["model"]) == ('x"}\n', "m\u2028")


def test_held_token_is_counted_and_sent_with_the_next():
    messages = [tokens("a"), tokens(""), tokens(""), tokens("🙂", reason="length")]
    events = [data(event) for event in stream(messages, continuous=True)[:-1]]
    contents = [event["choices"][0]["delta"].get("content") for event in events[:-1]]
    assert contents == ["a", "🙂", None]
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 4, 4, 4]


def test_role_comes_with_the_first_token_even_if_its_text_is_held():
    events = [data(event) for event in stream([tokens(""), tokens("é", reason="length")])[:-2]]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[1]["choices"][0]["delta"] == {"content": "é"}


@pytest.mark.parametrize("message", [tokens("x", reason="length"), tokens("", reason="stop"), tokens(reason="stop")])
def test_shortest_answers_have_a_choice_and_one_finish_reason(message):
    events = [data(event) for event in stream([message])[:-2]]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + [message.reason]


def test_stop_string_ends_the_answer_before_it():
    messages = [tokens("one "), tokens("tw"), tokens("o", "!", " never")]
    events = [data(event) for event in stream(messages, stops=("two",))[:-1]]
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == "one "
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["usage"]["completion_tokens"] == 3


def test_text_that_looked_like_a_stop_comes_before_the_finish_reason():
    events = [data(event) for event in stream([tokens("one tw", reason="length")], stops=("two",))[:-2]]
    assert [e["choices"][0]["delta"].get("content") for e in events] == ["one ", "tw", None]


def test_usage_counts_a_prompt_once_for_all_its_choices():
    choices = [Choice(index, index // 2, ()) for index in range(4)]
    for choice in choices:
        list(choice.take(tokens("a", "b", reason="length", prompt=5 + choice.prompt)))
    body = json.loads(whole(HEADING, choices, ["ab"] * 4))
    assert body["usage"]["prompt_tokens"] == 5 + 6
    assert body["usage"]["completion_tokens"] == 8
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]


def test_golden_bytes_of_a_whole_chat():
    choice = Choice(0, 0, ())
    texts = "".join(choice.take(tokens("Hel", "lo\u2028", reason="length")))
    assert whole(HEADING, [choice], [texts]) == (
        b'{"id":"chatcmpl-r1","object":"chat.completion","created":1700000000,"model":"llama-3-8b","choices":['
        b'{"index":0,"message":{"role":"assistant","content":"Hello\\u2028"},"logprobs":null,'
        b'"finish_reason":"length"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,'
        b'"prompt_tokens_details":{"cached_tokens":0}}}'
    )


def test_cached_tokens_of_the_prompts_are_counted_once_a_prompt():
    message = Tokens("r1", (1,), ("a",), 9, "length", 4)
    made = Stream(HEADING, include_usage=True, continuous_usage=True)
    choices = [Choice(0, 0, ()), Choice(1, 0, ()), Choice(2, 1, ())]
    for choice in choices:
        for event in made.events(choice, message):
            assert data(event)["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    usage, _ = made.end(choices)
    assert data(usage)["usage"] == {
        "prompt_tokens": 18, "completion_tokens": 3, "total_tokens": 21, "prompt_tokens_details": {"cached_tokens": 8},
    }  # fmt: skip
