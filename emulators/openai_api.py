"""The OpenAI-compatible HTTP interface over a `ServerPort`: an aiohttp application, no decisions about serving.

Follows design serving.md §4.2. Headers of a stream go out with its first token, so whatever is refused before has a
status of its own; each event is one write on a connection without Nagle's delay; a client that goes away cancels
its handler, which abandons the request. Answers never pass through compression or any other buffer.

It may not know machines, wires, clocks or the run.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web

from emulators import ascii_json, openai_errors, sse
from emulators.openai_answers import Heading, Stream, whole
from emulators.openai_calls import Call
from emulators.openai_errors import ApiError
from emulators.openai_requests import (
    DetokenizeBody,
    Generation,
    TokenizeBody,
    chat_prompt,
    read_body,
    read_chat,
    read_completion,
)
from emulators.prometheus import Metrics
from emulators.server_port import ServerPort, text_of
from testbed.serving.requests import Refused

VERSION = "0.1.0"
"""What `GET /version` says: Looplane's own, as in pyproject.toml."""

LARGEST_BODY = 16 << 20
"""Bytes of a request body; more is answered with 413."""

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
_NAME = web.RequestKey("name", str)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger(__name__)


def make_application(server: ServerPort, *, dilation: float = 1.0, api_key: str | None = None) -> web.Application:
    """The application. With `api_key`, everything under /v1 wants `Authorization: Bearer <key>`, as vLLM has it."""
    api = _Api(server, Metrics(server.card.id, dilation), api_key)
    application = web.Application(middlewares=[api.guard], client_max_size=LARGEST_BODY)
    application.add_routes(
        [
            web.post("/v1/chat/completions", api.chat),
            web.post("/v1/completions", api.completion),
            web.get("/v1/models", api.models),
            web.get("/v1/models/{id:.+}", api.model),
            web.get("/health", api.health),
            web.get("/ping", api.health),
            web.post("/ping", api.health),
            web.get("/version", api.version),
            web.get("/metrics", api.metrics),
            web.get("/load", api.load),
            web.post("/tokenize", api.tokenize),
            web.post("/detokenize", api.detokenize),
        ]
    )
    return application


async def listen(application: web.Application, address: str, port: int) -> tuple[web.AppRunner, int]:
    """Serves `application` at `address`; the runner (to be cleaned up) and the port, chosen by the kernel if 0.

    Raises OSError if the address cannot be bound.
    """
    runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, address, port, backlog=1024)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, int(runner.addresses[0][1])


class _Api:
    def __init__(self, server: ServerPort, metrics: Metrics, api_key: str | None) -> None:
        self._server = server
        self._metrics = metrics
        self._expected = None if api_key is None else f"Bearer {api_key}".encode()

    # --- what holds for every call ------------------------------------------------------------------------------

    @web.middleware
    async def guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Names the request, checks the key, and makes every error an OpenAI one."""
        given = request.headers.get("x-request-id", "")
        name = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request[_NAME] = name
        try:
            if request.path.startswith("/v1/"):
                self._check_key(request)
            response = await handler(request)
        except ApiError as error:
            response = _json(error.body, error.status, error.headers)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            response = _json(openai_errors.of_status(error.status, error.reason).body, error.status, allow)
        except Exception:  # noqa: BLE001  # the last line of defence: our fault is an answer, and a line in the log
            _log.exception("request %s failed", name)
            response = _json(openai_errors.internal().body, 500)
        if not response.prepared:
            response.headers["x-request-id"] = name
        return response

    def _check_key(self, request: web.Request) -> None:
        if self._expected is None:
            return
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, self._expected):
            raise openai_errors.unauthorised()

    def _check_ready(self) -> None:
        if not self._server.ready:
            raise openai_errors.not_ready()

    def _check_model(self, asked: str | None) -> None:
        served = self._server.card.id
        if asked is not None and asked != served:
            raise openai_errors.no_such_model(asked, served)

    # --- generation ---------------------------------------------------------------------------------------------

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._generate(request, read_chat)

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._generate(request, read_completion)

    async def _generate(self, request: web.Request, read: Callable[[bytes], Generation]) -> web.StreamResponse:
        self._check_ready()
        generation = read(await request.read())
        self._check_model(generation.model)
        try:
            call = Call(self._server, self._metrics, generation, request[_NAME])
        except KeyError as error:
            raise openai_errors.bad_request(f"there is no token {error}", generation.prompt_field) from None
        chat = read is read_chat
        kind = "chatcmpl" if chat else "cmpl"
        heading = Heading(
            chat=chat, identity=f"{kind}-{call.name}", created=int(time.time()), model=self._server.card.id
        )
        with call:
            if generation.stream:
                return await self._stream(request, generation, call, heading)
            return await self._whole(generation, call, heading)

    async def _whole(self, generation: Generation, call: Call, heading: Heading) -> web.Response:
        texts: list[list[str]] = [[] for _ in call.choices]
        async with contextlib.aclosing(call.messages()) as messages:
            async for choice, message in messages:
                if isinstance(message, Refused):
                    raise openai_errors.of_refusal(message, generation.prompt_field)
                texts[choice.index].extend(choice.take(message))
                call.settle(choice)
        return _json(whole(heading, call.choices, ["".join(pieces) for pieces in texts]))

    async def _stream(
        self, request: web.Request, generation: Generation, call: Call, heading: Heading
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_STREAM_HEADERS, "x-request-id": request[_NAME]})
        stream = Stream(
            heading, include_usage=generation.include_usage, continuous_usage=generation.continuous_usage
        )
        try:
            async with contextlib.aclosing(call.messages()) as messages:
                async for choice, message in messages:
                    if isinstance(message, Refused):
                        error = openai_errors.of_refusal(message, generation.prompt_field)
                        return await _break_off(request, response, error)
                    if not response.prepared:
                        await response.prepare(request)
                    for event in stream.events(choice, message):
                        await response.write(event)
                    call.settle(choice)
            *before, last = stream.end(call.choices)
            for event in before:
                await response.write(event)
            await response.write_eof(last)
        except ConnectionResetError:  # the client went away; leaving the call abandons what is open
            pass
        return response

    # --- facts --------------------------------------------------------------------------------------------------

    async def models(self, _: web.Request) -> web.Response:
        """GET /v1/models."""
        self._check_ready()
        return _json(ascii_json.encode({"object": "list", "data": [self._card()]}))

    async def model(self, request: web.Request) -> web.Response:
        """GET /v1/models/{id}."""
        self._check_ready()
        self._check_model(request.match_info["id"])
        return _json(ascii_json.encode(self._card()))

    def _card(self) -> dict[str, object]:
        card = self._server.card
        return {
            "id": card.id,
            "object": "model",
            "created": card.created,
            "owned_by": card.owned_by,
            "root": card.root,
            "parent": None,
            "max_model_len": card.max_model_len,
        }

    async def health(self, _: web.Request) -> web.Response:
        """GET /health, GET or POST /ping: 200 without a body once the model is loaded."""
        self._check_ready()
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        """GET /version."""
        return _json(ascii_json.encode({"version": VERSION}))

    async def metrics(self, _: web.Request) -> web.Response:
        """GET /metrics."""
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self._metrics.render().encode(), headers=headers)

    async def load(self, _: web.Request) -> web.Response:
        """GET /load: how many choices are being served."""
        return _json(ascii_json.encode({"server_load": self._metrics.running + self._metrics.waiting}))

    async def tokenize(self, request: web.Request) -> web.Response:
        """POST /tokenize."""
        self._check_ready()
        body = read_body(await request.read(), TokenizeBody)
        self._check_model(body.model)
        if (body.prompt is None) is (body.messages is None):
            raise openai_errors.bad_request("give either prompt or messages", "prompt")
        text = chat_prompt(body.messages) if body.messages is not None else body.prompt or ""
        vocabulary = self._server.vocabulary
        tokens = list(vocabulary.encode(text))
        facts = {
            "count": len(tokens),
            "max_model_len": self._server.card.max_model_len,
            "tokens": tokens,
            "token_strs": [text_of(vocabulary, [token]) for token in tokens],
        }
        return _json(ascii_json.encode(facts))

    async def detokenize(self, request: web.Request) -> web.Response:
        """POST /detokenize."""
        self._check_ready()
        body = read_body(await request.read(), DetokenizeBody)
        self._check_model(body.model)
        try:
            text = text_of(self._server.vocabulary, body.tokens)
        except KeyError as error:
            raise openai_errors.bad_request(f"there is no token {error}", "tokens") from None
        return _json(ascii_json.encode({"prompt": text}))


async def _break_off(request: web.Request, response: web.StreamResponse, error: ApiError) -> web.StreamResponse:
    """Ends a call that was refused: by status before the stream began, by an event and the connection's end after."""
    if not response.prepared:
        raise error
    await response.write(sse.event(error.body))
    # Without the end of HTTP's chunked body: a client that reads over the event still sees that the answer is cut.
    if request.transport is not None:
        request.transport.close()
    return response


def _json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json", **(headers or {})})
