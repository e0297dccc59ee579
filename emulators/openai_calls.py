"""One generation call while it is served: its requests at the server, and their messages merged.

Follows design serving.md §4.2: a client that goes away frees its slots, so whatever has not ended when a call is
left is abandoned. What a stop string has ended is finished: the slot is freed too, and the request counts as served.

It may not know HTTP or bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from emulators.openai_answers import Choice
from emulators.openai_requests import Generation
from emulators.prometheus import Metrics
from emulators.server_port import ServerPort, text_of
from testbed.serving.requests import Refused, Request, Sampling, Tokens

_SEED_MASK = (1 << 63) - 1
_LEAST_TOP_P = 1e-6
"""A ring's descriptor holds 32-bit floats; anything as small as this leaves but the most likely token anyway."""


class Call:
    """The choices of one call. Use as a context: on leaving, what has not ended is abandoned."""

    def __init__(self, server: ServerPort, metrics: Metrics, generation: Generation, name: str) -> None:
        """Submits nothing yet. Raises KeyError for a token id that there is not."""
        self._server = server
        self._metrics = metrics
        self._arrived = time.monotonic()
        self.name = _free_name(server, name, set())
        self._requests = _requests(server, generation, self.name)
        self.choices = [
            Choice(index, index // generation.choices, generation.stops) for index in range(len(self._requests))
        ]
        self._open: dict[int, bool] = {}
        """Choices at the server that have not ended; the value says whether a token has come."""

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        for index in tuple(self._open):
            self._end(index, "abandoned", failed=True)
            self._server.abandon(self._requests[index].name)

    async def messages(self) -> AsyncGenerator[tuple[Choice, Tokens | Refused], None]:
        """Submits all requests; their messages as they come, until every choice has ended or one was refused."""
        streams = []
        for index, request in enumerate(self._requests):
            streams.append(self._server.submit(request))
            self._open[index] = False
            self._metrics.submitted()
        async with contextlib.aclosing(_merge(streams)) as merged:
            async for index, message in merged:
                if index in self._open:
                    self._note(index, message)
                    yield self.choices[index], message
                if not self._open or isinstance(message, Refused):
                    return

    def settle(self, choice: Choice) -> None:
        """To be called when the texts of a message were taken: counts tokens, ends the choice if it is whole."""
        if choice.reason is not None:
            self._end(choice.index, choice.reason, failed=False)
            self._server.finish(self._requests[choice.index].name)

    def _note(self, index: int, message: Tokens | Refused) -> None:
        if isinstance(message, Refused):
            self._end(index, message.reason, failed=True)
            return
        if not self._open[index]:
            self._open[index] = True
            self._metrics.started(message.prompt_tokens, time.monotonic() - self._arrived)
        self._metrics.generation_tokens += len(message.tokens)

    def _end(self, index: int, reason: str, *, failed: bool) -> None:
        self._metrics.ended(started=self._open.pop(index), reason=reason, failed=failed)


def _requests(server: ServerPort, generation: Generation, name: str) -> list[Request]:
    """The server's requests: every prompt, `choices` times, each with a name and a seed of its own."""
    requests: list[Request] = []
    taken: set[str] = set()
    for prompt in generation.prompts:
        ids = () if isinstance(prompt, str) else prompt
        text = prompt if isinstance(prompt, str) else text_of(server.vocabulary, prompt)
        limit = generation.max_tokens
        if limit is None:
            limit = max(1, server.card.max_model_len - len(ids or server.vocabulary.encode(text)))
        for _ in range(generation.choices):
            place = len(requests)
            own = _free_name(server, name if place == 0 else f"{name}.{place}", taken)
            taken.add(own)
            seed = zlib.crc32(own.encode()) if generation.seed is None else generation.seed + place
            sampling = Sampling(
                temperature=generation.temperature,
                top_p=max(generation.top_p, _LEAST_TOP_P),
                seed=seed & _SEED_MASK,
                ignore_eos=generation.ignore_eos,
            )
            requests.append(
                Request(name=own, prompt=text, max_tokens=limit, sampling=sampling, prompt_ids=ids)
            )
    return requests


def _free_name(server: ServerPort, name: str, taken: set[str]) -> str:
    """`name`, or the first of name~2, name~3 … that no request in flight has: clients may repeat themselves."""
    candidate, number = name, 1
    while server.in_use(candidate) or candidate in taken:
        number += 1
        candidate = f"{name}~{number}"
    return candidate


async def _merge(
    streams: Sequence[AsyncIterator[Tokens | Refused]],
) -> AsyncGenerator[tuple[int, Tokens | Refused], None]:
    """The messages of several streams, each with its stream's place, in the order in which they come."""
    if len(streams) == 1:  # nearly every call: no task and no second queue
        async for message in streams[0]:
            yield 0, message
        return
    merged: asyncio.Queue[tuple[int, Tokens | Refused | None]] = asyncio.Queue()

    async def pump(place: int, stream: AsyncIterator[Tokens | Refused]) -> None:
        async for message in stream:
            merged.put_nowait((place, message))
        merged.put_nowait((place, None))

    pumps = [asyncio.ensure_future(pump(place, stream)) for place, stream in enumerate(streams)]
    try:
        running = len(pumps)
        while running:
            place, merged_message = await merged.get()
            if merged_message is None:
                running -= 1
            else:
                yield place, merged_message
    finally:
        for task in pumps:
            task.cancel()
