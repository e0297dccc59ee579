"""One node's machines, and where their effects go. Every clock drives nodes through this class.

It knows nothing of time itself: `now` is handed in. It decides nothing: effects are routed by their type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from testbed.machine import (
    Completion,
    Compute,
    Deliver,
    Effect,
    Effects,
    Emit,
    Event,
    Machine,
    MachineError,
    Message,
    Verb,
)
from testbed.units import Nanoseconds


class Accelerator(Protocol):
    """The third port (architecture §1): takes work, answers later with effects. An emulated or a real device."""

    def submit(self, now: Nanoseconds, work: Any) -> Effects:
        """Starts `work`; what goes wrong at once is among the effects, as CUDA's return code would be."""
        ...

    def wake(self, now: Nanoseconds) -> Effects:
        """Finishes what is due at `now`."""
        ...

    def deadline(self) -> Nanoseconds | None:
        """When the next work finishes, or None."""
        ...


class NodeHost:
    """Machines of one node and their ports.

    `post(now, verb)` hands a verb to the wire, `emit(now, event)` an event to the log, `outside(now, deliver)` a
    message for a name that is no machine of this node (the HTTP shell, or a machine of another node).
    """

    def __init__(
        self,
        name: str,
        machines: Iterable[Machine],
        *,
        post: Callable[[Nanoseconds, Verb], None],
        emit: Callable[[Nanoseconds, Event], None],
        outside: Callable[[Nanoseconds, Deliver], None],
        accelerator: Accelerator | None = None,
    ) -> None:
        self.name = name
        self.machines: dict[str, Machine] = {machine.name: machine for machine in machines}
        self._post = post
        self._emit = emit
        self._outside = outside
        self._accelerator = accelerator
        self._owner_of_ticket: dict[int, str] = {}

    def deliver(self, now: Nanoseconds, to: str, message: Message) -> None:
        """Hands `message` to the machine `to` and carries out all that follows at `now`."""
        self._carry_out(now, to, self.machines[to].receive(now, message))

    def complete(self, now: Nanoseconds, completion: Completion) -> None:
        """Hands a verb's completion to the machine that posted it."""
        owner = self._owner_of_ticket.pop(completion.ticket, None)
        if owner is None:
            raise MachineError(f"{self.name}: completion for unknown ticket {completion.ticket}")
        self.deliver(now, owner, completion)

    def wake(self, now: Nanoseconds) -> None:
        """Wakes the accelerator and every machine whose deadline is due, in order of construction."""
        accelerator = self._accelerator
        if accelerator is not None and _due(accelerator.deadline(), now):
            self._carry_out(now, "", accelerator.wake(now))
        for name, machine in self.machines.items():
            if _due(machine.deadline(), now):
                self._carry_out(now, name, machine.wake(now))

    def deadline(self) -> Nanoseconds | None:
        """The earliest deadline of the node."""
        deadlines = [machine.deadline() for machine in self.machines.values()]
        if self._accelerator is not None:
            deadlines.append(self._accelerator.deadline())
        return min((moment for moment in deadlines if moment is not None), default=None)

    def _carry_out(self, now: Nanoseconds, source: str, effects: Sequence[Effect]) -> None:
        waiting: deque[tuple[str, Effect]] = deque((source, effect) for effect in effects)
        while waiting:
            source, effect = waiting.popleft()
            match effect:
                case Emit():
                    self._emit(now, effect.event)
                case Verb():
                    if effect.ticket in self._owner_of_ticket:
                        raise MachineError(f"{self.name}: ticket {effect.ticket} is already in flight")
                    self._owner_of_ticket[effect.ticket] = source
                    self._post(now, effect)
                case Deliver(to=to) if to in self.machines:
                    answer = self.machines[to].receive(now, effect.message)
                    waiting.extend((to, follow) for follow in answer)
                case Deliver():
                    self._outside(now, effect)
                case Compute():
                    if self._accelerator is None:
                        raise MachineError(f"{self.name} has no accelerator for {type(effect.work).__name__}")
                    waiting.extend(("", follow) for follow in self._accelerator.submit(now, effect.work))
                case _:
                    raise MachineError(f"{self.name}: unknown effect {type(effect).__name__}")


def _due(deadline: Nanoseconds | None, now: Nanoseconds) -> bool:
    return deadline is not None and deadline <= now
