"""Which prefill engine a waiting turn gets: first in, first out, three classes of engines (DualPath 6.1, design 1.2).

A plain function over integers and int64 arrays: it compiles as it is, and one decision costs one pass over the
fetching group's engines. What the paper leaves open is an argument. It knows no machine, letter or time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def place(
    lengths: Integers,
    reads: Integers,
    members: Integers,
    node_of: Integers,
    tokens: Integers,
    read_queue: Integers,
    alpha: int,
    beta: int,
    chosen: Integers,
) -> int:
    """Gives the first waiting turns engines of `members` and returns how many; the others stay, in order.

    `lengths` are len(r) of the waiting turns (context and append, the natural reading), head first, `reads` what each
    adds to `read_queue` of its engine's node at once (zeros for none; not stated). `tokens` is tok of all engines,
    `node_of` their nodes. `chosen`, `tokens` and `read_queue` are written to. Engines with more than `beta` tokens get
    nothing; those on a node with at most `alpha` queued tokens come before the others; of either class the least
    tokens win. Where those are equal (not stated), the shorter queue does, or few turns would all go to the engines
    of one node, and then the lowest place in `members`. Classes are formed anew for each turn. A turn that finds no
    engine holds up all behind it.
    """
    for turn in range(len(lengths)):
        short = -1
        long = -1
        for engine in members:
            if tokens[engine] > beta:
                continue
            queue = read_queue[node_of[engine]]
            best = short if queue <= alpha else long
            if best >= 0 and (
                tokens[engine] > tokens[best] or (tokens[engine] == tokens[best] and queue >= read_queue[node_of[best]])
            ):
                continue
            if queue <= alpha:
                short = engine
            else:
                long = engine
        engine = short if short >= 0 else long
        if engine < 0:
            return turn
        chosen[turn] = engine
        tokens[engine] += lengths[turn]
        read_queue[node_of[engine]] += reads[turn]
    return len(lengths)
