"""A fold: one pass over a run's events that keeps a small state and gives a result at any moment.

The console folds while it tails a log, a report folds whole files: one definition for both (architecture §6). The
law that makes this safe is tested over random cuts for every fold of `testbed.metrics.table`: the state encoded
after k events, decoded, and fed the events after k gives the state after all n.

Folds are given records in the one order (`testbed.events.ordering`). They know events; they do not know which
system wrote them, nor files or clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from testbed.events.log import Record
from testbed.machine import Event

StateT = TypeVar("StateT")
ResultT = TypeVar("ResultT", covariant=True)


class Fold(Protocol[StateT, ResultT]):
    """One metric's definition. A fold object itself holds parameters only and never changes."""

    @property
    def state(self) -> type[StateT]:
        """The struct that holds everything the fold remembers; msgspec can encode and decode it."""
        ...

    @property
    def takes(self) -> frozenset[type[Event]]:
        """The events that can change the state; `step` with any other returns it as it is."""
        ...

    def start(self) -> StateT:
        """The state before the first event."""
        ...

    def step(self, state: StateT, record: Record) -> StateT:
        """The state after `record`. It may be the very object that was given, changed."""
        ...

    def result(self, state: StateT) -> ResultT:
        """What the state says; the state is not changed and nothing of it is handed out to be changed."""
        ...


class UnknownFold(Exception):
    """A name that no fold of this folding has."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"no fold is called {name!r}; there are {', '.join(self.known)}")


class Folding:
    """Several folds over one stream of records; each record is shown only to the folds that take its event."""

    def __init__(self, folds: Mapping[str, Fold[Any, Any]]) -> None:
        self._folds = dict(folds)
        self._states: dict[str, Any] = {name: fold.start() for name, fold in self._folds.items()}
        self._takers: dict[type[Event], list[str]] = {}
        for name, fold in self._folds.items():
            for event in fold.takes:
                self._takers.setdefault(event, []).append(name)

    def take(self, record: Record) -> None:
        """Shows one record to the folds."""
        for name in self._takers.get(type(record.event), ()):
            self._states[name] = self._folds[name].step(self._states[name], record)

    def take_all(self, records: Iterable[Record]) -> Folding:
        """Shows many records; returns itself."""
        for record in records:
            self.take(record)
        return self

    def result(self, name: str) -> Any:
        """The present result of the fold `name`. Raises `UnknownFold`."""
        return self._fold(name).result(self._states[name])

    def snapshot(self) -> dict[str, bytes]:
        """All states, encoded."""
        return {name: msgspec.msgpack.encode(state) for name, state in self._states.items()}

    def restore(self, snapshot: Mapping[str, bytes]) -> None:
        """Goes on from a snapshot. Raises `UnknownFold`, or msgspec.ValidationError if it is of another version."""
        states = {name: msgspec.msgpack.decode(data, type=self._fold(name).state) for name, data in snapshot.items()}
        self._states.update(states)

    def _fold(self, name: str) -> Fold[Any, Any]:
        if name not in self._folds:
            raise UnknownFold(name, self._folds)
        return self._folds[name]
