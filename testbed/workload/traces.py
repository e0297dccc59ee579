"""The session formats of public traces: bytes to recorded sessions, strictly; complaints name place and field.

- `claude-code`: kv-cache-tester's WEKA / Claude-Code sessions, one JSON object a file, ids of full blocks; a sub-agent
  is a session of its own, whose ids are its parent's.
- `mooncake`: FAST'25 release, JSON lines, blocks of 512, ids shared by all of the file; `session_id` where a replayer
  has added it, else a line is a session.
- `bailian`: Qwen-Bailian, JSON lines, blocks of 16, ids shared by all of the file; chats are chained by their parents.
- `llmservingsim`: agentic JSON lines, `sub_requests` of one session in a line; no ids.

Formats are described in design serving 2.2, 2.5 and 2.6. A recording's own arrival times are not used: agents start as
the workload says. Whether lengths are cumulative is not in the files and is told by the reader (known fault 23).
This file reads no file; unknown fields are left alone, since every collector adds some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from testbed.units import MILLISECOND, SECOND, Nanoseconds
from testbed.workload.recorded_sessions import (
    Input,
    RecordedRequest,
    RecordedSession,
    TokenSpace,
    TraceError,
    trajectory_of,
)
from testbed.workload.trajectories import Trajectory

TraceFormat: TypeAlias = Literal["claude-code", "mooncake", "bailian", "llmservingsim"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
Identity: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""Of any size; ids are never narrowed (known fault 22)."""
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=10_000_000)]
MOST_REQUESTS = 200_000
"""Requests of one file that are taken, over all its sessions."""


class ClaudeCodeRequest(msgspec.Struct, rename={"input": "in", "output": "out"}):
    """One entry of `requests`; a sub-agent's entry nests its own."""

    type: str
    input: Count | None = None
    output: Count | None = None
    hash_ids: tuple[Identity, ...] = ()
    think_time: Seconds = 0.0
    requests: tuple[ClaudeCodeRequest, ...] = ()


class ClaudeCodeSession(msgspec.Struct):
    """One file."""

    id: str
    block_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    requests: tuple[ClaudeCodeRequest, ...]
    hash_id_scope: Literal["local", "global"] = "local"


class MooncakeLine(msgspec.Struct):
    """One line; `delay` and `delay_ms` are milliseconds after the session's line before."""

    input_length: Count
    output_length: Count
    hash_ids: tuple[Identity, ...] = ()
    session_id: str | int | None = None
    delay: Seconds = 0.0
    delay_ms: Seconds = 0.0
    timestamp: Seconds | None = None


class BailianLine(msgspec.Struct):
    """One line; a root's parent is -1."""

    chat_id: int
    parent_chat_id: int
    input_length: Count
    output_length: Count
    hash_ids: tuple[Identity, ...] = ()


class SubRequest(msgspec.Struct):
    """One of an LLMServingSim session; the tool runs after it."""

    input_toks: Count
    output_toks: Count
    tool_duration_ns: Annotated[int, msgspec.Meta(ge=0, le=10**16)] = 0


class ServingSimLine(msgspec.Struct):
    """One session."""

    session_id: str | int
    sub_requests: tuple[SubRequest, ...]
    arrival_time_ns: Identity = 0


class TraceFile(NamedTuple):
    """A file of a trace, or one of several."""

    source: str
    """Its name, for complaints."""
    data: bytes


class _Found(NamedTuple):
    """What a file holds."""

    sessions: list[RecordedSession]
    block: int
    everywhere: bool
    """Whether ids mean the same in all files of the trace."""


def parse(files: Sequence[TraceFile], form: TraceFormat, told: Input, most_sessions: int) -> list[Trajectory]:
    """The first `most_sessions` sessions of a trace; their streams are small numbers. Raises `TraceError`."""
    spaces: dict[int, TokenSpace] = {}
    trajectories: list[Trajectory] = []
    requests = 0
    for number, (source, data) in enumerate(files, start=1):
        found = _FORMATS[form](data, source)
        scope = 0 if found.everywhere else number
        space = spaces.setdefault(scope, TokenSpace(scope, found.block))
        if space.block != found.block:
            raise TraceError(source, "block_size", f"{found.block}, and ids are shared with files of {space.block}")
        for session in found.sessions[: most_sessions - len(trajectories)]:
            requests += len(session.requests)
            if requests > MOST_REQUESTS:
                reason = f"more than {MOST_REQUESTS} requests in {most_sessions} sessions; set most_sessions lower"
                raise TraceError(source, "", reason)
            trajectories.append(trajectory_of(session, space, told, source))
    if not trajectories:
        raise TraceError(files[0].source if files else "", "", "there is no session in it")
    return trajectories


# --- the formats -------------------------------------------------------------------------------------------------


def _claude_code(data: bytes, source: str) -> _Found:
    try:
        told = msgspec.json.decode(data, type=ClaudeCodeSession)
    except msgspec.MsgspecError as fault:
        raise _complaint(source, "", data, fault) from fault
    sessions = []
    queue = [(told.id, "requests", told.requests)]
    for origin, path, requests in queue:
        plain = []
        for number, request in enumerate(requests):
            place = f"{path}[{number}]"
            if request.requests:
                queue.append((f"{origin}/{number}", f"{place}.requests", request.requests))
            elif request.type != "subagent":
                plain.append(_claude_code_request(request, place, source))
        if plain:
            sessions.append(RecordedSession(origin, tuple(plain)))
    return _Found(sessions, told.block_size, everywhere=told.hash_id_scope == "global")


def _claude_code_request(request: ClaudeCodeRequest, place: str, source: str) -> RecordedRequest:
    for name, value in (("in", request.input), ("out", request.output)):
        if value is None:
            raise TraceError(source, place, f"the field {name} is missing")
    assert request.input is not None
    assert request.output is not None
    pause = round(request.think_time * SECOND)
    return RecordedRequest(place, request.input, request.output, request.hash_ids, pause)


def _mooncake(data: bytes, source: str) -> _Found:
    grouped: dict[str | int | tuple[int], list[RecordedRequest]] = {}
    for number, place, line in _lines(data, MooncakeLine, source):
        pause = round((line.delay_ms or line.delay) * MILLISECOND)
        request = RecordedRequest(place, line.input_length, line.output_length, line.hash_ids, pause)
        # A line without a session has a key that no session_id can be.
        grouped.setdefault((number,) if line.session_id is None else line.session_id, []).append(request)
    sessions = [
        RecordedSession(f"line {key[0]}" if isinstance(key, tuple) else f"session {key}", tuple(requests))
        for key, requests in grouped.items()
    ]
    return _Found(sessions, 512, everywhere=True)


def _bailian(data: bytes, source: str) -> _Found:
    root_of: dict[int, int] = {}
    grouped: dict[int, list[RecordedRequest]] = {}
    for _, place, line in _lines(data, BailianLine, source):
        if line.chat_id in root_of:
            raise TraceError(source, place, f"chat_id {line.chat_id} is there twice")
        # A parent from before the recording makes its chat a root.
        root = root_of.get(line.parent_chat_id, line.chat_id)
        root_of[line.chat_id] = root
        request = RecordedRequest(place, line.input_length, line.output_length, line.hash_ids)
        grouped.setdefault(root, []).append(request)
    sessions = [RecordedSession(f"chat {root}", tuple(requests)) for root, requests in grouped.items()]
    return _Found(sessions, 16, everywhere=True)


def _servingsim(data: bytes, source: str) -> _Found:
    seen: dict[str | int, None] = {}
    sessions = []
    for _, place, line in _lines(data, ServingSimLine, source):
        if line.session_id in seen:
            raise TraceError(source, place, f"session_id {line.session_id!r} is there twice")
        if not line.sub_requests:
            raise TraceError(source, place, "sub_requests is empty")
        seen[line.session_id] = None
        requests = []
        pause: Nanoseconds = 0
        for number, sub in enumerate(line.sub_requests):
            where = f"{place}, sub_requests[{number}]"
            requests.append(RecordedRequest(where, sub.input_toks, sub.output_toks, (), pause))
            pause = sub.tool_duration_ns
        sessions.append(RecordedSession(f"session {line.session_id}", tuple(requests)))
    return _Found(sessions, 1, everywhere=False)


_FORMATS: dict[str, Callable[[bytes, str], _Found]] = {
    "claude-code": _claude_code,
    "mooncake": _mooncake,
    "bailian": _bailian,
    "llmservingsim": _servingsim,
}


# --- lines and complaints -----------------------------------------------------------------------------------------


def _lines(data: bytes, kind: type[Any], source: str) -> Iterator[tuple[int, str, Any]]:
    """Number, place and content of each line that is not empty."""
    decode = msgspec.json.Decoder(kind).decode
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield number, f"line {number}", decode(line)
        except msgspec.MsgspecError as fault:
            raise _complaint(source, f"line {number}", line, fault) from fault


def _complaint(source: str, place: str, data: bytes, fault: Exception) -> TraceError:
    """A decoder's complaint with the line and the field, msgspec's path `$.requests[3].in` spelt requests[3].in."""
    reason, _, path = str(fault).partition(" - at `")
    field = path.rstrip("`").removeprefix("$").removeprefix(".")
    byte = reason.rpartition("(byte ")[2].rstrip(")")
    if not place and byte.isdigit():
        place = f"line {1 + data[: int(byte)].count(10)}"
    return TraceError(source, ", ".join(part for part in (place, field) if part), reason)
