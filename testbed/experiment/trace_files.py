"""Reads the sessions that an experiment names and puts them into it, so that nothing later needs the file.

A path is taken beneath the experiment's own folder, then beneath fixtures/traces; an experiment that is no file (the
console's form, standard input) has the latter alone. Reading is bounded, and what is no regular file is not opened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from testbed.experiment.complaints import Complaint, shown
from testbed.experiment.spec import Spec
from testbed.workload.agent_loads import FileTrajectories
from testbed.workload.recorded_sessions import TraceError
from testbed.workload.traces import TraceFile, parse

TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "traces"
LARGEST_TRACE = 64 << 20
"""Bytes of one file, and of all files of a folder together."""
_PLACE = "workload.trajectories.path"


def with_sessions(spec: Spec, folder: Path | None) -> tuple[Spec, list[Complaint]]:
    """The experiment with its recorded sessions in it, or what is wrong with their file."""
    load = spec.workload.trajectories
    if not isinstance(load, FileTrajectories):
        return spec, []
    try:
        if not load.packed:
            files = _files(load.path, folder)
            load = load.filled(parse(files, load.format, load.input, load.most_sessions))
        # Whether anything fits is known only now.
        load.found(spec.seed)
    except (TraceError, ValueError) as fault:
        return spec, [Complaint(_PLACE, shown(load.path), str(fault))]
    workload = msgspec.structs.replace(spec.workload, trajectories=load)
    return msgspec.structs.replace(spec, workload=workload), []


def _files(told: str, folder: Path | None) -> list[TraceFile]:
    """The file, or every .json and .jsonl of the folder, by name; called as the author wrote the path."""
    if told.startswith("/") or ".." in told.split("/"):
        raise TraceError(told, "", "a path leads from the experiment or from fixtures/traces downwards")
    places = [place / told for place in (folder, TRACES) if place is not None]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        beside = "beside the experiment or " if folder is not None else ""
        raise TraceError(told, "", f"there is no such file {beside}in fixtures/traces")
    if not path.is_dir():
        return [TraceFile(told, _read(path, told, LARGEST_TRACE))]
    room = LARGEST_TRACE
    files = []
    for inside in sorted(path.iterdir()):
        if inside.suffix in {".json", ".jsonl"}:
            name = f"{told.rstrip('/')}/{inside.name}"
            files.append(TraceFile(name, _read(inside, name, room)))
            room -= len(files[-1].data)
    if not files:
        raise TraceError(told, "", "there is no .json or .jsonl file in this folder")
    return files


def _read(path: Path, told: str, room: int) -> bytes:
    try:
        # Without waiting: opening a pipe that nobody writes to would.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise TraceError(told, "", "no regular file")
            data = file.read(room + 1)
    except OSError as fault:
        raise TraceError(told, "", fault.strerror or str(fault)) from fault
    if len(data) > room:
        raise TraceError(told, "", f"too large; a trace has at most {LARGEST_TRACE} bytes")
    return data
