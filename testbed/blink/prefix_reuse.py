"""The resident scheduler's memory of prompts: KV that an earlier request has left is not computed again.

Beyond the paper, which has no prefix cache. At a claim the longest prefix of the prompt whose blocks are known is
shared; what is left, at least the last token, is prefilled behind it. When a prompt is computed its whole blocks are
remembered. How many tokens were found travels to the DPU in a word in front of the answer. The tree itself is
`testbed.serving.prefix_blocks`; a restarted scheduler begins with an empty one.
"""

from __future__ import annotations

import zlib

from testbed.blink.ring import ANSWER_HEADER, TOKEN, Descriptor, RingView
from testbed.serving.prefix_blocks import SharedBlockPool, block_keys


class PrefixReuse:
    """What `Admission` asks about prefixes."""

    def __init__(self, ring: RingView, pool: SharedBlockPool) -> None:
        self._ring = ring
        self._pool = pool
        self._block_bytes = pool.block_tokens * TOKEN

    def keys(self, found: Descriptor) -> tuple[bytes, ...]:
        """Keys of the prompt's whole blocks; none if the prompt is not what its checksum says."""
        start = self._ring.layout.prompt(found.prompt_start)
        data = bytes(self._ring.memory.view[start : start + found.prompt_tokens * TOKEN])
        return block_keys(data, self._block_bytes) if zlib.crc32(data) == found.prompt_checksum else ()

    def reusable(self, found: Descriptor, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Of the prompt's keys those whose blocks may be shared: its last token is always computed."""
        return keys[: (found.prompt_tokens - 1) // self._pool.block_tokens]

    def shared(self, found: Descriptor, keys: tuple[bytes, ...]) -> int:
        """Blocks that a claim would share with those who hold them now."""
        return self._pool.held_prefix(self.reusable(found, keys))

    def allocate(self, found: Descriptor, keys: tuple[bytes, ...], blocks: int) -> tuple[tuple[int, ...], int] | None:
        """`blocks` blocks and how many tokens of the prompt the first of them hold; None if there are not so many."""
        known = self._pool.find(self.reusable(found, keys))
        fresh = self._pool.allocate(blocks - len(known))
        if fresh is None:
            self._pool.release(known)
            return None
        return known + fresh, len(known) * self._pool.block_tokens

    def note(self, found: Descriptor, tokens: int) -> None:
        """Tells the DPU how many tokens were found, before it can see a token of the answer."""
        self._ring.put_answer(found.answer_start - ANSWER_HEADER, tokens)

    def remember(self, keys: tuple[bytes, ...], blocks: tuple[int, ...]) -> tuple[int, ...]:
        """The prompt is computed: its whole blocks can be shared from now on. Returns the request's blocks."""
        return self._pool.remember(keys, blocks)

    @property
    def idle(self) -> int:
        """Remembered blocks that nobody holds."""
        return self._pool.idle

    @property
    def evicted(self) -> int:
        """Remembered blocks that were given to others."""
        return self._pool.evicted
