import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.openai_errors import ApiError
from emulators.openai_requests import read_chat, read_completion

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"model": "m", "prompt": "hi"}


def chat(**fields):
    return read_chat(json.dumps({**CHAT, **fields}).encode())


def completion(**fields):
    return read_completion(json.dumps({**COMPLETION, **fields}).encode())


def test_what_guidellm_sends():
    read = chat(
        messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        max_completion_tokens=7,
        ignore_eos=True,
        anything={"unknown": [1]},
    )
    assert read.prompts == ("<｜User｜>ab<｜Assistant｜>",)
    assert (read.max_tokens, read.ignore_eos, read.stream) == (7, True, True)
    assert (read.include_usage, read.continuous_usage) == (True, True)


def test_what_vllm_bench_sends():
    read = completion(
        temperature=0.0, repetition_penalty=1.0, max_tokens=5, logprobs=None, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    assert (read.prompts, read.max_tokens, read.temperature) == (("hi",), 5, 0.0)
    assert (read.include_usage, read.continuous_usage) == (True, False)


def test_defaults_are_openais():
    read = chat()
    assert (read.max_tokens, read.choices, read.temperature, read.top_p) == (None, 1, 1.0, 1.0)
    assert (read.seed, read.ignore_eos, read.stops, read.stream) == (None, False, (), False)
    assert completion().max_tokens == 16


def test_null_is_the_same_as_left_out():
    nothing = dict.fromkeys(
        ["max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "seed", "stop", "stream", "logprobs"]
    )
    assert chat(**nothing) == chat()


def test_the_newer_name_of_max_tokens_wins():
    assert chat(max_tokens=3, max_completion_tokens=4).max_tokens == 4
    assert chat(max_tokens=3).max_tokens == 3


def test_turns_become_one_text():
    turns = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "T", "tool_call_id": "x"},
    ]
    assert chat(messages=turns).prompts == (
        "S<｜User｜>U<｜Assistant｜><｜end▁of▁sentence｜><｜User｜>T<｜Assistant｜>",
    )


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), ([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3)))],
)
def test_every_form_of_a_prompt(prompt, prompts):
    assert completion(prompt=prompt).prompts == prompts


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 65}, "n"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"logprobs": True}, "logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_wrong_chat_fields_are_named(fields, param):
    with pytest.raises(ApiError) as caught:
        chat(**fields)
    assert (caught.value.status, caught.value.kind, caught.value.param) == (400, "invalid_request_error", param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[1], "a"]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": ["a"] * 10, "n": 7}, "n"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 1}, "logprobs"),
        ({"best_of": 2}, "best_of"),
    ],
)
def test_wrong_completion_fields_are_named(fields, param):
    with pytest.raises(ApiError) as caught:
        completion(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_missing_field_is_named():
    for read, field in ((read_chat, "messages"), (read_completion, "prompt")):
        with pytest.raises(ApiError) as caught:
            read(b'{"model": "m"}')
        assert caught.value.param == field


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": NaN}', b'{"messages":"\\ud800"}', b"[" * 5000]
)
def test_no_json_object_is_a_bad_request(body):
    with pytest.raises(ApiError) as caught:
        read_chat(body)
    assert caught.value.status == 400
    assert json.loads(caught.value.body)["error"]["type"] == "invalid_request_error"


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KNOWN = [
    "model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "seed", "stop",
    "stream", "stream_options", "ignore_eos", "logprobs", "echo", "best_of", "suffix", "role", "content",
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KNOWN), odd), st.sampled_from([CHAT, COMPLETION, {}]))
def test_odd_values_are_read_or_refused_but_never_break_anything(fields, whole):
    for read in (read_chat, read_completion):
        found = read_or_error(read, json.dumps({**whole, **fields}).encode())
        if isinstance(found, ApiError):
            assert found.status == 400
            assert found.body.isascii()
        else:
            assert 1 <= len(found.prompts) * found.choices <= 64
            assert found.max_tokens is None or found.max_tokens >= 1


def read_or_error(read, body):
    try:
        return read(body)
    except ApiError as error:
        return error
