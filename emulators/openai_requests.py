"""Bodies of chat and completion calls, read and checked: what is wrong is named by its field, unknown fields pass.

Follows OpenAI's API reference and the fields that benchmark clients send beyond it (design serving.md §4.1, §4.2):
list content parts, `max_completion_tokens` over `max_tokens`, `ignore_eos`, `stream_options` with
`continuous_usage_stats`, `logprobs` as null.

It may not know HTTP, nor who serves the request.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from emulators.openai_errors import bad_request

COMPLETION_DEFAULT_TOKENS = 16
"""OpenAI's default of `max_tokens` for text completions; a chat may fill the context."""

MOST_CHOICES = 64
"""Upper bound of prompts times `n` in one call: ours, so that one call cannot fill the ring."""

MOST_STOPS = 16
"""Upper bound of stop strings. OpenAI allows 4, other servers more."""

Prompt = str | tuple[int, ...]
"""A text, or token ids."""

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class Generation(msgspec.Struct, frozen=True):
    """One call, whatever its endpoint."""

    model: str | None
    prompts: tuple[Prompt, ...]
    prompt_field: str
    """messages or prompt: the field that errors about the prompt name."""
    choices: int
    """Answers to each prompt (`n`)."""
    max_tokens: int | None
    """None lets the answer fill the context."""
    temperature: float
    top_p: float
    seed: int | None
    ignore_eos: bool
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    """A last chunk with the usage (stream only)."""
    continuous_usage: bool
    """The usage so far on every chunk (stream only)."""


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class Message(msgspec.Struct):
    """One turn of a chat; names, tool calls and the like pass unread."""

    role: str
    content: str | list[_Part] | None = None


class _Body(msgspec.Struct):
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    ignore_eos: bool | None = None


class _ChatBody(_Body, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None


class _CompletionBody(_Body, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class TokenizeBody(msgspec.Struct):
    """`POST /tokenize`, as vLLM has it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None


class DetokenizeBody(msgspec.Struct):
    """`POST /detokenize`, as vLLM has it."""

    tokens: list[int]
    model: str | None = None


_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<field>[^`]+)`")


def read_body(body: bytes, kind: type[_Struct]) -> _Struct:
    """`body` as a `kind`. Raises `ApiError` 400 that names the field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        path = _PATH.search(str(error))
        missing = _MISSING.search(str(error))
        field = path["path"] if path else missing["field"] if missing else None
        raise bad_request(f"{_PATH.sub('', str(error))}{f': {field}' if path else ''}", field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"The body is not valid JSON: {error}") from None


def read_chat(body: bytes) -> Generation:
    """The body of `POST /v1/chat/completions`. Raises `ApiError` 400."""
    chat = read_body(body, _ChatBody)
    if chat.logprobs:
        raise bad_request("logprobs are not offered; leave them out or send null", "logprobs")
    limit = chat.max_completion_tokens
    field = "max_completion_tokens"
    if limit is None:
        limit, field = chat.max_tokens, "max_tokens"
    return _generation(chat, (chat_prompt(chat.messages),), "messages", limit, field)


def read_completion(body: bytes) -> Generation:
    """The body of `POST /v1/completions`. Raises `ApiError` 400."""
    completion = read_body(body, _CompletionBody)
    if completion.logprobs is not None:
        raise bad_request("logprobs are not offered; leave them out or send null", "logprobs")
    if completion.echo:
        raise bad_request("echo is not offered", "echo")
    if completion.suffix:
        raise bad_request("suffix is not offered", "suffix")
    if (completion.best_of or 1) > (completion.n or 1):
        raise bad_request("best_of above n is not offered", "best_of")
    limit = COMPLETION_DEFAULT_TOKENS if completion.max_tokens is None else completion.max_tokens
    return _generation(completion, _prompts(completion.prompt), "prompt", limit, "max_tokens")


def chat_prompt(messages: list[Message]) -> str:
    """The turns as one text: DeepSeek's template, since that is the bundled vocabulary (design serving.md §7).

    System text first, then `<｜User｜>` and `<｜Assistant｜>` before each turn, and the assistant's mark at the end.
    Raises `ApiError` 400 for a role that it does not know, or content that is not text.
    """
    if not messages:
        raise bad_request("messages may not be empty", "messages")
    pieces: list[str] = []
    for place, message in enumerate(messages):
        text = _content(message, place)
        if message.role not in _ROLES:
            allowed = ", ".join(_ROLES)
            raise bad_request(f"unknown role {message.role!r}; one of {allowed}", f"messages[{place}].role")
        if message.role in ("system", "developer"):
            pieces.append(text)
        elif message.role == "assistant":
            pieces.append(f"<｜Assistant｜>{text}<｜end▁of▁sentence｜>")
        else:
            pieces.append(f"<｜User｜>{text}")
    return "".join(pieces) + "<｜Assistant｜>"


def _content(message: Message, place: int) -> str:
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    for number, part in enumerate(message.content):
        if part.type != "text" or part.text is None:
            where = f"messages[{place}].content[{number}]"
            raise bad_request(f"only parts of type text are served, not {part.type!r}", where)
    return "".join(part.text or "" for part in message.content)


def _prompts(prompt: str | list[str | int | list[int]]) -> tuple[Prompt, ...]:
    """One prompt or several: a text, texts, token ids, or lists of token ids."""
    if isinstance(prompt, str):
        return (prompt,)
    if not prompt:
        raise bad_request("prompt may not be an empty list", "prompt")
    if all(isinstance(item, int) for item in prompt):
        return (_ids(prompt),)
    found: list[Prompt] = []
    for item in prompt:
        if isinstance(item, str) is not isinstance(prompt[0], str) or isinstance(item, int):
            raise bad_request("prompt must hold texts, token ids or lists of token ids, not a mixture", "prompt")
        found.append(item if isinstance(item, str) else _ids(item))
    return tuple(found)


def _ids(tokens: list[Any]) -> tuple[int, ...]:
    if not tokens or min(tokens) < 0:
        raise bad_request("a prompt of token ids needs at least one, none below 0", "prompt")
    return tuple(tokens)


def _generation(
    body: _Body, prompts: tuple[Prompt, ...], prompt_field: str, limit: int | None, limit_field: str
) -> Generation:
    if limit is not None:
        _within(limit_field, limit, 1, None)
    choices = 1 if body.n is None else body.n
    _within("n", choices, 1, MOST_CHOICES // len(prompts) or 1)
    if len(prompts) > MOST_CHOICES:
        raise bad_request(f"at most {MOST_CHOICES} prompts in one call", prompt_field)
    temperature = 1.0 if body.temperature is None else body.temperature
    _within("temperature", temperature, 0, 2)
    top_p = 1.0 if body.top_p is None else body.top_p
    if not 0 < top_p <= 1:
        raise bad_request(f"top_p must be above 0 and at most 1, not {top_p}", "top_p")
    stops = () if body.stop is None else (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    if "" in stops or len(stops) > MOST_STOPS:
        raise bad_request(f"stop takes at most {MOST_STOPS} texts, none of them empty", "stop")
    options = body.stream_options or _StreamOptions()
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options need stream: true", "stream_options")
    return Generation(
        model=body.model,
        prompts=prompts,
        prompt_field=prompt_field,
        choices=choices,
        max_tokens=limit,
        temperature=temperature,
        top_p=top_p,
        seed=body.seed,
        ignore_eos=bool(body.ignore_eos),
        stops=stops,
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.continuous_usage_stats),
    )


def _within(field: str, value: float, least: float, most: float | None) -> None:
    if value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"from {least} to {most}"
        raise bad_request(f"{field} must be {allowed}, not {value}", field)

