"""KV as engines find and leave it in HBM: every Layer Block is checked before it is used, new ones are written.

The images stand for KV (`testbed.dualpath.blocks`); writing one is what the layer's kernels would do. Knows places, no
batch and no turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.dualpath.blocks import BadBlock, BlockShape, check_layer, layer_image
from testbed.dualpath.node_memory import Hbm
from testbed.dualpath.places import Holding
from testbed.events.kv_events import BlockRejected


class KvInHbm:
    """Of one engine. A `row` is the layer's place in a holding: the layer itself, or 0 in a window's row."""

    def __init__(self, hbm: Hbm, shape: BlockShape) -> None:
        self._hbm = hbm
        self._shape = shape

    def check(self, place: Holding, row: int, layer: int, ids: Sequence[int], tokens: int) -> BlockRejected | None:
        """Checks all blocks of a sequence of `tokens` tokens; what is to be said of the first wrong one."""
        shape, view, size = self._shape, self._hbm.memory.view, self._shape.layer_image
        for block, offset in enumerate(place.layer_offsets(row, 0, shape.blocks_of(tokens))):
            try:
                found = check_layer(shape, view[offset : offset + size], ids[block], layer)
                if found != min(shape.tokens, tokens - block * shape.tokens):
                    raise BadBlock(ids[block], layer, f"has {found} tokens")
            except BadBlock as error:
                return BlockRejected(f"{ids[block]:016x}", self._hbm.region, str(error))
        return None

    def write(self, place: Holding, row: int, layer: int, ids: Sequence[int], first: int, tokens: int) -> None:
        """What kernels leave: blocks from `first` on of a sequence that has `tokens` tokens now."""
        shape, view, size = self._shape, self._hbm.memory.view, self._shape.layer_image
        for block, offset in enumerate(place.layer_offsets(row, first, shape.blocks_of(tokens) - first), first):
            held = min(shape.tokens, tokens - block * shape.tokens)
            view[offset : offset + size] = layer_image(shape, ids[block], layer, held)
