"""What an engine does for one layer, one thing after another: compute, and collectives with its group.

Alone, a layer is one piece of compute. In a group of expert parallelism it is attention, dispatch, experts, combine;
where a group computes layers together (tensor parallel), each half is followed by ReduceScatter and AllGather. Bytes
are those of hidden states: one byte a value to the experts (FP8), two back and in tensor parallel (BF16); experts are
spread evenly over the group (no hot experts). Knows times and sizes as they are handed in, no KV and no turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from testbed.dualpath.collectives import machine_name
from testbed.dualpath.engine_messages import engine_name
from testbed.dualpath.local_messages import Exchange
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.round_letters import EngineLoad
from testbed.machine import Compute, Deliver, Effect
from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.serving.timed_device import TimedWork
from testbed.units import Nanoseconds


class LayerSteps:
    """Of one engine, which is number `place` of its group."""

    def __init__(self, engine: int, place: int, parameters: DualPathParameters, byte_scale: int) -> None:
        model = AGENTIC_MODELS[parameters.model]
        self._engine = engine
        self._place = place
        self._together = parameters.tensor_parallel
        self._hidden = model.hidden
        self._experts = max(1, model.experts_per_token)
        self._byte_scale = byte_scale
        self._ticket = 0
        self._sequence = 0
        """Of the group's collectives; a round continues where the one before ended."""
        self._left: deque[Nanoseconds | tuple[str, tuple[int, ...]]] = deque()
        self._busy = False

    @property
    def is_busy(self) -> bool:
        """Whether a step is under way."""
        return self._busy

    def alone(self, duration: Nanoseconds) -> list[Effect]:
        """A layer without a group."""
        self._left.append(duration)
        return self.next()

    def in_group(self, first: Nanoseconds, second: Nanoseconds, loads: Sequence[EngineLoad]) -> list[Effect]:
        """A layer of a round: two pieces of compute, and the collectives between and behind them."""
        members = len(loads)
        if self._together:
            part = -(-sum(load.tokens for load in loads) // members) * self._hidden * 2
            shared = self._each([part] * members)
            after: list[tuple[str, tuple[int, ...]]] = [("reduce_scatter", shared), ("all_gather", shared)]
            self._left += [first, *after, second, *after]
        else:
            own = loads[self._place].tokens * self._hidden * self._experts // members
            back = [load.tokens * self._hidden * 2 * self._experts // members for load in loads]
            self._left += [first, ("dispatch", self._each([own] * members)), second, ("combine", self._each(back))]
        return self.next()

    def next(self) -> list[Effect]:
        """The next step; nothing, and no longer busy, when the layer is done."""
        self._busy = bool(self._left)
        if not self._left:
            return []
        step = self._left.popleft()
        self._ticket += 1
        owner = engine_name(self._engine)
        if isinstance(step, int):
            return [Compute(TimedWork(self._engine, owner, self._ticket, step))]
        self._sequence += 1
        operation, sizes = step
        exchange = Exchange(
            owner=owner, ticket=self._ticket, operation=operation, sequence=self._sequence, bytes_to_each=sizes
        )
        return [Deliver(machine_name(self._engine), exchange)]

    def give_up(self) -> None:
        """Nothing more of this layer."""
        self._left.clear()
        self._busy = False

    def _each(self, true_bytes: Sequence[int]) -> tuple[int, ...]:
        """As images; nothing for itself."""
        return tuple(
            0 if member == self._place else -(-size // self._byte_scale) for member, size in enumerate(true_bytes)
        )
