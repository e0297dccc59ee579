"""One forward batch of a prefill engine: who is in it, which layers are fetched, computed and sent on.

With layerwise prefill (design dualpath 1.1) a batch holds a window of layers in HBM: one that is computed, those that
are fetched ahead, and one that is still being sent on. Without it the window is all layers. A window's rows are given
to layers in turn, so a layer may be fetched once the layer that had its row before is sent. Bookkeeping only: it posts
nothing and knows no time but what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.dualpath.batch_quota import NO_QUOTA, pack
from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.buffers import Extents
from testbed.dualpath.engine_messages import PrefillJob
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.places import Area, Holding, Part, split
from testbed.serving.step_times import AttentionCost
from testbed.units import Nanoseconds

_PS = 1_000
"""Picoseconds in a nanosecond."""


class Work:
    """A turn at a prefill engine, and how far it is."""

    __slots__ = ("chunks", "done", "failure", "job")

    def __init__(self, job: PrefillJob, done: int) -> None:
        self.job = job
        self.done = done
        """Tokens whose KV is there: hits at first, then those of earlier chunks too."""
        self.chunks = 0
        """Forward batches that it had a part in."""
        self.failure = ""

    @property
    def left(self) -> int:
        """Tokens to compute."""
        return self.job.prompt_tokens - self.done


class Member:
    """A turn's part in one batch: tokens `cached` to `cached + new - 1` are computed."""

    __slots__ = ("block_tokens", "cached", "checked", "first_chunk", "flying", "new", "rows", "work")

    def __init__(self, work: Work, new: int, block_tokens: int) -> None:
        self.work = work
        self.cached = work.done
        self.new = new
        self.block_tokens = block_tokens
        self.first_chunk = work.chunks == 0
        self.checked = 0
        """Layer Blocks whose checksum fitted."""
        self.rows: dict[int, Holding] = {}
        """Places of a window's layers; those that no further layer needs are taken out."""
        self.flying = 0
        """Moves and letters that are not answered yet: nothing may be freed before they are (known fault 31)."""

    @property
    def job(self) -> PrefillJob:
        """Of its turn."""
        return self.work.job

    @property
    def is_last(self) -> bool:
        """Whether the prompt is done with this batch."""
        return self.cached + self.new == self.job.prompt_tokens

    @property
    def blocks(self) -> int:
        """Blocks that it has when the batch is done, the last one perhaps in part."""
        return -(-(self.cached + self.new) // self.block_tokens)

    @property
    def cached_blocks(self) -> int:
        """Blocks that are fetched, the last one perhaps in part (known fault 29)."""
        return -(-self.cached // self.block_tokens)

    @property
    def first_new(self) -> int:
        """First block that gets new tokens."""
        return self.cached // self.block_tokens

    def tokens_of(self, block: int, end: int) -> int:
        """Tokens that `block` has when the sequence has `end`."""
        return min(self.block_tokens, end - block * self.block_tokens)

    def sent(self) -> list[tuple[str, int, int]]:
        """(hop, first block, blocks) of what goes to the decode side, for each layer."""
        job, new = self.job, self.blocks - self.first_new
        suffix = "-hbm" if job.landing == "hbm" else ""
        if job.here_blocks < job.hit_blocks:
            sent = [("de-miss" + suffix, self.first_new, new)]
            if job.here_blocks and self.first_chunk:
                sent.insert(0, ("pe5-7" + suffix, 0, job.here_blocks))
            return sent
        if self.first_chunk:
            return [("pe5-7" + suffix, 0, self.blocks)]
        return [("pe5-7" + suffix, self.first_new, new)]


class Batch:
    """See the head of this file."""

    def __init__(self, members: Sequence[Member], layers: int, window: int, ahead: int, began: Nanoseconds) -> None:
        self.members = list(members)
        self.layers = layers
        self.window = window
        self.ahead = ahead
        self.began = began
        self.next_fetch = 0
        """First layer that is not fetched yet."""
        self.computed = 0
        """Layers that are computed."""
        self.computing = False
        self.attention: Nanoseconds = 0
        self.compute: Nanoseconds = 0
        self.layer_time: Nanoseconds = 0
        """Compute of the layer that was begun last."""
        self.hbm_bytes = 0
        self._fetching = [0] * layers
        self._sending = [0] * layers
        self._sent = 0
        """Layers 0 to this one less one are computed and sent, and their rows free."""

    @property
    def active(self) -> list[Member]:
        """Members whose turns have not failed."""
        return [member for member in self.members if not member.work.failure]

    @property
    def is_computed(self) -> bool:
        """Whether the last layer is."""
        return self.computed == self.layers

    def may_fetch(self) -> bool:
        """Whether the next layer's KV may be fetched: there is a row for it, and it is not too early."""
        return (
            self.next_fetch < self.layers
            and self.next_fetch < self._sent + self.window
            and self.next_fetch <= self.computed + self.ahead
        )

    def may_compute(self) -> bool:
        """Whether the next layer can be computed: all its KV has come."""
        return (
            not self.computing
            and self.computed < self.layers
            and self.computed < self.next_fetch
            and self._fetching[self.computed] == 0
        )

    def fetching(self, layer: int, more: int) -> int:
        """`more` further transfers of a layer are on their way here; how many are then."""
        self._fetching[layer] += more
        return self._fetching[layer]

    def sending(self, layer: int, more: int) -> list[int]:
        """The same for transfers that go away; rows of the window that no further layer needs."""
        self._sending[layer] += more
        spare: list[int] = []
        while self._sent < self.computed and self._sending[self._sent] == 0:
            if self._sent + self.window >= self.layers:
                spare.append(self._sent % self.window)
            self._sent += 1
        return spare


def packed(waiting: Sequence[Work], cost: AttentionCost, parameters: DualPathParameters) -> list[int]:
    """Tokens to compute now, of the first turns that wait, in order (design dualpath 1.5)."""
    computed = np.zeros(len(waiting), np.int64)
    count = pack(
        np.array([work.done for work in waiting], np.int64),
        np.array([work.left for work in waiting], np.int64),
        cost.token,
        cost.pair,
        NO_QUOTA if parameters.quota is None else parameters.quota * _PS,
        parameters.chunk_tokens,
        parameters.batch_tokens,
        computed,
    )
    return [int(new) for new in computed[:count]]


def rows_of(region: str, shape: BlockShape, extents: Extents, window: int, blocks: int) -> dict[int, Holding]:
    """The rows of a window in pages of Layer Blocks: `blocks` pages each, in the order of the extents."""
    rows: dict[int, Holding] = {}
    for row in range(window):
        taken, extents = split(extents, blocks)
        rows[row] = Holding((Part(Area(region, taken, 1, shape.layer_image, rows=True), 0, 0, blocks),))
    return rows
