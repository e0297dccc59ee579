"""The three kinds of event of a Chrome trace that exports need: slices, names and counters, in true microseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.units import Nanoseconds

TraceEvent = dict[str, Any]


def process(pid: int, name: str) -> Iterator[TraceEvent]:
    """The name of a process, and its place among the others."""
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}


def thread(pid: int, tid: int, name: str) -> Iterator[TraceEvent]:
    """The name of a thread; its number is its place among the others."""
    yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def slice_event(
    pid: int, tid: int, name: str, start: Nanoseconds, end: Nanoseconds, args: Mapping[str, Any] | None = None
) -> TraceEvent:
    """Something that lasted; those of one thread nest and never overlap."""
    event: TraceEvent = {
        "ph": "X", "pid": pid, "tid": tid, "name": name, "cat": "looplane", "ts": as_us(start),
        "dur": as_us(end - start),
    }  # fmt: skip
    if args is not None:
        event["args"] = dict(args)
    return event


def counter(pid: int, name: str, t: Nanoseconds, values: Mapping[str, float]) -> TraceEvent:
    """Values from `t` on."""
    return {"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": as_us(t), "args": dict(values)}


def as_us(time: Nanoseconds) -> float:
    """Of nanoseconds."""
    return time / 1000
