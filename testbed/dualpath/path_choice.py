"""Which side reads a turn's hit KV: the one whose node has the shorter disk-reading queue (DualPath 6.1, design 1.4).

Plain functions over integers, compilable as they are. The rule for equal queues and the hysteresis are not the paper's
but arguments; splitting one turn over both sides is its future work. They know no machine, letter or time.
"""

from __future__ import annotations

PREFILL = 0
DECODE = 1
NEITHER = -1
"""No turn of this pair of nodes has read yet."""

TIE_PREFILL = 0
TIE_DECODE = 1
TIE_ALTERNATE = 2
"""The side that the pair's last turn did not have; prefill first."""


def choose(prefill_queue: int, decode_queue: int, last: int, tie: int, hysteresis: int) -> int:
    """PREFILL or DECODE. Queues in tokens; `last` is the side of the last turn between these two nodes.

    With `hysteresis` 0 the shorter queue wins and `tie` decides between equal ones. Above 0 the last side is kept
    unless the other's queue is shorter by more than `hysteresis` tokens.
    """
    if hysteresis > 0 and last != NEITHER:
        here = prefill_queue if last == PREFILL else decode_queue
        there = decode_queue if last == PREFILL else prefill_queue
        return 1 - last if there + hysteresis < here else last
    if prefill_queue != decode_queue:
        return PREFILL if prefill_queue < decode_queue else DECODE
    if tie == TIE_ALTERNATE:
        return DECODE if last == PREFILL else PREFILL
    return PREFILL if tie == TIE_PREFILL else DECODE


def split(hit_blocks: int, block_tokens: int, prefill_queue: int, decode_queue: int) -> int:
    """How many leading hit blocks the prefill side reads, so that both queues end at the same time.

    Both sides are taken to read equally fast; a block that belongs half to either goes to the decode side.
    """
    level = hit_blocks * block_tokens + decode_queue - prefill_queue
    return min(max((level + block_tokens - 1) // (2 * block_tokens), 0), hit_blocks)
