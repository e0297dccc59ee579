"""Which decode engine a turn gets: a group by tokens, then an engine under the watermark Z (DualPath 6.1, design 1.3).

Plain functions over integers and int64 arrays: they compile as they are, and one decision costs one pass over groups or
over a group's engines. What the paper leaves open is an argument. They know no machine, letter or time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def assign_groups(lengths: Integers, group_tokens: Integers, counted: bool, chosen: Integers) -> None:
    """Phase 1: each turn goes to the private queue of the group with the least tokens, the lowest of equals.

    `group_tokens` is the sum of tok over each group's engines. Where `counted` (not stated; ours, or all turns of one
    draining would go to the same group), a group's sum grows by each turn that it is given. `chosen` is written to.
    """
    for turn in range(len(lengths)):
        best = 0
        for group in range(1, len(group_tokens)):
            if group_tokens[group] < group_tokens[best]:
                best = group
        chosen[turn] = best
        if counted:
            group_tokens[best] += lengths[turn]


def place(
    lengths: Integers,
    needs: Integers,
    members: Integers,
    tokens: Integers,
    sequences: Integers,
    free: Integers,
    z_percent: int,
    most_sequences: int,
    chosen: Integers,
) -> int:
    """Phase 2: gives the first turns of a private queue engines of `members` and returns how many.

    `lengths` are len(r), `needs` the KV blocks that each turn will hold, `free` the free ones of each engine. Z is
    `z_percent` of the mean tokens that the group would have with the longest prefix of the queue that fits into all of
    its free memory. An engine must have room for the turn, and fewer than `most_sequences`. Of those that stay within
    Z the fewest sequences win, else the fewest tokens, and the lowest of equals (not stated). The first turn that
    fits nowhere ends it. `chosen`, `tokens`, `sequences` and `free` are written to.
    """
    room = 0
    total = 0
    for engine in members:
        room += free[engine]
        total += tokens[engine]
    for turn in range(len(lengths)):
        if needs[turn] > room:
            break
        room -= needs[turn]
        total += lengths[turn]
    for turn in range(len(lengths)):
        low = -1
        high = -1
        for engine in members:
            if free[engine] < needs[turn] or sequences[engine] >= most_sequences:
                continue
            # tok + len <= Z, without a division: Z = z_percent * total / (100 * engines).
            if (tokens[engine] + lengths[turn]) * 100 * len(members) <= z_percent * total:
                if low < 0 or sequences[engine] < sequences[low]:
                    low = engine
            elif high < 0 or tokens[engine] < tokens[high]:
                high = engine
        engine = low if low >= 0 else high
        if engine < 0:
            return turn
        chosen[turn] = engine
        tokens[engine] += lengths[turn]
        sequences[engine] += 1
        free[engine] -= needs[turn]
    return len(lengths)
