"""Answers of the OpenAI API as bytes: chunks of a stream and whole bodies, for chats and for text completions.

Follows design serving.md §4.2: the role comes with the first token and never before it; one chunk a token, a token
whose text is held back is counted and sent with the next; exactly one finish reason a choice; usage in a chunk of
its own with empty `choices`. A chunk costs a few string joins, since what is the same in all is made once a call.

It may not know HTTP, requests' bodies or the server: texts go in, bytes come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from emulators import ascii_json, sse
from emulators.stop_strings import StopStrings
from testbed.serving.requests import Tokens


class Heading(msgspec.Struct, frozen=True):
    """What all parts of one answer share."""

    chat: bool
    identity: str
    """`chatcmpl-` or `cmpl-` and the request's name."""
    created: int
    """Seconds since 1970."""
    model: str


class Choice:
    """One answer as far as it has come. `reason` is set once it is whole."""

    def __init__(self, index: int, prompt: int, stops: tuple[str, ...]) -> None:
        self.index = index
        self.prompt = prompt
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.tokens = 0
        self.reason: str | None = None
        self._stops = StopStrings(stops)

    def take(self, message: Tokens) -> Iterator[str]:
        """The texts that may go out, one a token (empty where held back); the rest comes with the last one."""
        self.prompt_tokens = message.prompt_tokens
        self.cached_tokens = message.cached_tokens
        for text in message.texts:
            self.tokens += 1
            yield self._stops.feed(text)
            if self._stops.matched is not None:
                self.reason = "stop"
                return
        if message.reason is not None:
            rest = self._stops.flush()
            self.reason = message.reason
            if rest:
                yield rest


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """The usage object; `cached_tokens` of the prompts were in a prefix cache."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def usage_of(choices: Sequence[Choice]) -> dict[str, Any]:
    """The usage of a whole call: each prompt counts once, every choice's tokens count."""
    prompts = {choice.prompt: choice for choice in reversed(choices)}
    known = sum(choice.cached_tokens for choice in prompts.values())
    written = sum(choice.prompt_tokens for choice in prompts.values())
    return usage(written, sum(choice.tokens for choice in choices), known)


class Stream:
    """The events of one streamed call."""

    def __init__(self, heading: Heading, *, include_usage: bool, continuous_usage: bool) -> None:
        self._chat = heading.chat
        kind = "chat.completion.chunk" if heading.chat else "text_completion"
        self._prefix = (
            f'data: {{"id":{ascii_json.text(heading.identity)},"object":"{kind}","created":{heading.created},'
            f'"model":{ascii_json.text(heading.model)},"choices":['
        )
        self._include_usage = include_usage
        self._continuous = include_usage and continuous_usage
        self._tail = '],"usage":null}\n\n' if include_usage else "]}\n\n"
        self._started: set[int] = set()

    def events(self, choice: Choice, message: Tokens) -> Iterator[bytes]:
        """The events that `message` of `choice` makes, in order."""
        for text in choice.take(message):
            if choice.index not in self._started:
                self._started.add(choice.index)
                yield self._event(choice, self._first(choice.index, text))
            elif text:
                yield self._event(choice, self._next(choice.index, text))
        if choice.reason is None:
            return
        if choice.index not in self._started:  # an answer without any token still has a choice to show
            self._started.add(choice.index)
            yield self._event(choice, self._first(choice.index, ""))
        yield self._event(choice, self._finish(choice.index, choice.reason))

    def end(self, choices: Sequence[Choice]) -> Iterator[bytes]:
        """The usage event, if it was asked for, and the end of the stream."""
        if self._include_usage:
            tail = ascii_json.encode(usage_of(choices)).decode("ascii")
            yield f'{self._prefix}],"usage":{tail}}}\n\n'.encode("ascii")
        yield sse.DONE

    def _event(self, choice: Choice, inner: str) -> bytes:
        if not self._continuous:
            return (self._prefix + inner + self._tail).encode("ascii")
        prompt, completion = choice.prompt_tokens, choice.tokens
        details = f'"prompt_tokens_details":{{"cached_tokens":{choice.cached_tokens}}}'
        return (
            f'{self._prefix}{inner}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},'
            f'"total_tokens":{prompt + completion},{details}}}}}\n\n'
        ).encode("ascii")

    def _first(self, index: int, text: str) -> str:
        content = ascii_json.text(text)
        if self._chat:
            delta = f'"delta":{{"role":"assistant","content":{content}}}'
            return f'{{"index":{index},{delta},"logprobs":null,"finish_reason":null}}'
        return self._next(index, text)

    def _next(self, index: int, text: str) -> str:
        content = ascii_json.text(text)
        if self._chat:
            return f'{{"index":{index},"delta":{{"content":{content}}},"finish_reason":null}}'
        return f'{{"index":{index},"text":{content},"logprobs":null,"finish_reason":null}}'

    def _finish(self, index: int, reason: str) -> str:
        if self._chat:
            return f'{{"index":{index},"delta":{{}},"finish_reason":{ascii_json.text(reason)}}}'
        return f'{{"index":{index},"text":"","logprobs":null,"finish_reason":{ascii_json.text(reason)}}}'


def whole(heading: Heading, choices: Sequence[Choice], texts: Sequence[str]) -> bytes:
    """The body of a call that was not streamed; `texts` are the choices' whole texts."""
    answers: list[dict[str, Any]] = []
    for choice, text in zip(choices, texts, strict=True):
        said = {"message": {"role": "assistant", "content": text}} if heading.chat else {"text": text}
        answers.append({"index": choice.index, **said, "logprobs": None, "finish_reason": choice.reason})
    return ascii_json.encode(
        {
            "id": heading.identity,
            "object": "chat.completion" if heading.chat else "text_completion",
            "created": heading.created,
            "model": heading.model,
            "choices": answers,
            "usage": usage_of(choices),
        }
    )
