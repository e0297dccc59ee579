"""Columns of a pack: numbers as typed arrays, texts and other values as places in a list of their JSON.

Events of one type and with the same fields make a table; a column of table numbers says in which order they came.
"""

from __future__ import annotations

import json
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from webui.runs.pack_source import Line

HEADER = ("t", "node", "seq", "type")


class Columns:
    """Typed arrays one after the other, each from a multiple of eight bytes on; `places` says where each lies."""

    KINDS = {"float64": "f8", "int32": "i4", "uint32": "u4", "uint16": "u2"}

    def __init__(self) -> None:
        self.places: dict[str, tuple[str, int, int]] = {}
        """Kind, first byte after the header, and number of values, by name."""
        self.parts: list[bytes] = []
        self._at = 0

    def add(self, name: str, values: npt.NDArray[Any]) -> str:
        """Stores an array under `name`, which it returns."""
        data = np.ascontiguousarray(values).tobytes()
        self.places[name] = (self.KINDS[values.dtype.name], self._at, len(values))
        data += bytes(-len(data) % 8)
        self.parts.append(data)
        self._at += len(data)
        return name

    def numbers(self, name: str, values: Sequence[float]) -> str:
        """As the narrowest of int32 and float64 that holds them."""
        found = np.asarray(values)
        if found.dtype.kind in "iu" and (not len(found) or (abs(found) < 2**31).all()):
            return self.add(name, found.astype(np.int32))
        return self.add(name, found.astype(np.float64))

    def times(self, name: str, rows: Sequence[array[int]]) -> None:
        """Rows of rising times: a first moment and a length for each row, then steps of 32 bits where they fit."""
        self.add(f"{name}.length", np.asarray([len(row) for row in rows], np.uint32))
        whole = [np.frombuffer(row, np.int64) for row in rows if len(row)]
        steps = [np.diff(row, prepend=row[:1]) for row in whole]
        if all((row >= 0).all() and (row < 2**32).all() for row in steps):
            self.add(f"{name}.first", np.asarray([row[0] for row in whole], np.float64))
            self.add(f"{name}.step", _joined(steps).astype(np.uint32))
        else:
            self.add(f"{name}.t", _joined(whole).astype(np.float64))


def _joined(rows: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(rows) if rows else np.empty(0, np.int64)


class _Table:
    """Events of one type with the same fields."""

    def __init__(self, kind: str, fields: tuple[str, ...], only_logged: bool) -> None:
        self.kind = kind
        self.fields = fields
        self.only_logged = only_logged
        self.t: list[int] = []
        self.node: list[str] = []
        self.seq: list[int] = []
        self.values: list[list[Any]] = [[] for _ in fields]

    def take(self, line: Line) -> None:
        self.t.append(line.t)
        self.node.append(line.node)
        self.seq.append(line.seq)
        event = line.event
        for name, column in zip(self.fields, self.values, strict=True):
            column.append(event[name])


class Tables:
    """All events that the page folds itself, and the newest of the others, which only its log shows."""

    def __init__(self, kept: int) -> None:
        self._tables: dict[tuple[str, bool, tuple[str, ...]], tuple[int, _Table]] = {}
        self._order = array("H")
        self._newest: deque[tuple[int, int, Line]] = deque(maxlen=kept)
        self._kept = kept
        self._lines = 0

    def take(self, line: Line) -> None:
        """An event that the page folds."""
        # Late wakes are drawn together on the page, and may take up no line of their own.
        self._lines += line.event["type"] != "clock.late"
        self._order.append(self._put(line, only_logged=False))

    def remember(self, line: Line) -> None:
        """An event that is in the pack only while it is among the newest."""
        self._lines += 1
        self._newest.append((self._lines, len(self._order), line))

    def _put(self, line: Line, *, only_logged: bool) -> int:
        key = (line.event["type"], only_logged, tuple(line.event))
        found = self._tables.get(key)
        if found is None:
            fields = tuple(name for name in line.event if name not in HEADER)
            found = self._tables[key] = len(self._tables), _Table(line.event["type"], fields, only_logged)
        found[1].take(line)
        return found[0]

    def write(self, columns: Columns) -> list[dict[str, Any]]:
        """Adds the columns; returns what the head says of each table."""
        order, at = array("H"), 0
        for number, place, line in self._newest:
            if number > self._lines - self._kept:
                order.extend(self._order[at:place])
                at = place
                order.append(self._put(line, only_logged=True))
        order.extend(self._order[at:])
        columns.add("order", np.frombuffer(order, np.uint16) if order else np.empty(0, np.uint16))
        return [_written(number, table, columns) for number, table in self._tables.values()]


def _written(number: int, table: _Table, columns: Columns) -> dict[str, Any]:
    fields: dict[str, Sequence[Any]] = {"t": table.t, "node": table.node, "seq": table.seq}
    fields |= dict(zip(table.fields, table.values, strict=True))
    told = [_column(f"{number}.{name}", name, values, columns) for name, values in fields.items()]
    return {"type": table.kind, "n": len(table.t), "logged": table.only_logged, "fields": told}


def _column(place: str, name: str, values: Sequence[Any], columns: Columns) -> dict[str, Any]:
    kinds = set(map(type, values))
    if kinds <= {int, float} and all(abs(value) < 2**53 for value in values):
        columns.numbers(place, values)
        return {"name": name}
    texts: dict[str, int] = {}
    if kinds == {str}:
        places = [texts.setdefault(value, len(texts)) for value in values]
        column = {"name": name, "texts": list(texts)}
    else:
        places = [texts.setdefault(json.dumps(value), len(texts)) for value in values]
        column = {"name": name, "values": [json.loads(text) for text in texts]}
    columns.add(place, np.asarray(places, np.uint16 if len(texts) < 2**16 else np.uint32))
    return column
