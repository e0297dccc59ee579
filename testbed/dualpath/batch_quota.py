"""Which turns a prefill engine computes together: in order, up to a quota of attention time (DualPath 6.2, design 1.5).

Attention time is the closed form of `testbed.serving.step_times.AttentionCost`, all layers together ("attention layer
execution time" is not said to be of one layer; 300 ms of one would be no limit). A plain function over integers and
int64 arrays, compilable as it is. It knows no machine, memory or time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

NO_QUOTA = -1


def pack(
    cached: Integers,
    remaining: Integers,
    token_cost: int,
    pair_cost: int,
    quota: int,
    chunk: int,
    most_tokens: int,
    computed: Integers,
) -> int:
    """Fills `computed` with the tokens that each of the first turns computes in this batch; returns how many turns.

    `cached` are tokens whose KV is there (hit or earlier chunk), `remaining` those still to compute, in FIFO order.
    Costs and `quota` in picoseconds, of all layers (`NO_QUOTA` for none); the floors of a batch do not count, since
    they take nothing away from turns that are added. The first turn that does not fit as a whole gets the largest
    part that does, by binary search, rounded down to a multiple of `chunk`, and ends the batch; a batch that would
    be empty takes one chunk all the same. A batch computes at most `most_tokens` (one chunk is always allowed).
    """
    left = 2 * quota
    room = most_tokens
    for turn in range(len(cached)):
        fits = min(remaining[turn], room)
        if quota != NO_QUOTA:
            low = 0
            while low < fits:
                middle = (low + fits + 1) // 2
                if middle * (2 * token_cost + pair_cost * (2 * cached[turn] + middle)) <= left:
                    low = middle
                else:
                    fits = middle - 1
        if fits < remaining[turn]:
            fits -= fits % chunk
            if fits == 0 and turn == 0:
                fits = min(chunk, remaining[turn])
            computed[turn] = fits
            return turn + 1 if fits > 0 else turn
        computed[turn] = fits
        left -= fits * (2 * token_cost + pair_cost * (2 * cached[turn] + fits))
        room -= fits
    return len(cached)
