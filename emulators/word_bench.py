"""Measures operations on shared slot words: `python -m emulators.word_bench slot_cas|ring_scan|lost_increments`.

Prints one JSON list of nanoseconds an operation, one figure a repeat, each the mean of many operations so that the
clock's own cost does not show. `lost_increments` counts instead: two processes raise one word by compare-and-swap at
the same time, and what the word lacks in the end was lost. Read a figure beside others of the same run; machines
differ and wander.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np

from emulators.shared_memory import SharedMemory
from testbed.blink.ring import RingLayout, RingView
from testbed.blink.slots import SlotState

SLOTS = 4096
INCREMENTS = 200_000
"""Of each of the two processes."""
LAYOUT = RingLayout(slots=SLOTS, input_tokens=4096, token_tokens=4096)


def slot_cas(memory: SharedMemory) -> Callable[[], object]:
    """A compare-and-swap of one slot word through the CPU."""
    return lambda: memory.compare_swap(0, 0, 0)


def ring_scan(memory: SharedMemory) -> Callable[[], object]:
    """One scan of all 4,096 state words for pending slots, a few of them pending."""
    ring = RingView(memory, LAYOUT)
    memory.words(0, SLOTS)[::512] = np.uint64(SlotState.PREFILL_PENDING)
    return lambda: ring.slots_in(SlotState.PREFILL_PENDING)


OPERATIONS: dict[str, tuple[Callable[[SharedMemory], Callable[[], object]], int]] = {
    "slot_cas": (slot_cas, 2000),
    "ring_scan": (ring_scan, 200),
}
"""What can be measured, and how many operations make one figure."""


def measure(name: str, repeats: int) -> list[float]:
    """Nanoseconds of one operation, `repeats` times."""
    prepare, often = OPERATIONS[name]
    memory = SharedMemory.create(LAYOUT.size)
    operation = prepare(memory)
    figures = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(often):
            operation()
        figures.append((time.perf_counter_ns() - start) / often)
    return figures


def lost_increments() -> int:
    """Two processes × 200,000 increments of one word by compare-and-swap; how many the word lacks."""
    memory = SharedMemory.create(4096)
    child = os.fork()
    if child == 0:
        try:
            _increment(memory)
            os._exit(0)
        finally:
            os._exit(1)
    _increment(memory)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("the second process has failed")
    return 2 * INCREMENTS - memory.load(0)


def _increment(memory: SharedMemory) -> None:
    seen = 0
    for _ in range(INCREMENTS):
        while (found := memory.compare_swap(0, seen, seen + 1)) != seen:
            seen = found
        seen += 1


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="emulators.word_bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("operation", choices=[*sorted(OPERATIONS), "lost_increments"])
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    if options.operation == "lost_increments":
        figures: list[float] = [lost_increments() for _ in range(options.repeats)]
    else:
        figures = measure(options.operation, options.repeats)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
