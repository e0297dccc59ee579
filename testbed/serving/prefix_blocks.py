"""KV blocks that several sequences share: a tree of prompt prefixes over a block pool, with counts and a memory.

A block that holds a whole block of a prompt is known by a key, the digest of its tokens and of its parent's key, so
equal keys mean equal prefixes (as vLLM's automatic prefix caching names blocks; the digest stands for the tokens). A
block that nobody holds any more but that has a key stays, idle, until room is needed; those idle longest go first,
and of one prefix the deepest, so that what is left is always a prefix. It knows blocks and keys, not sequences.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from testbed.machine import MachineError
from testbed.serving.kv_blocks import BlockPool

KEY_BYTES = 16


def block_keys(tokens: bytes | memoryview, block_bytes: int) -> tuple[bytes, ...]:
    """A key for each whole block of `tokens` (`block_bytes` bytes of token ids make a block)."""
    keys: list[bytes] = []
    parent = b""
    for start in range(0, len(tokens) - block_bytes + 1, block_bytes):
        parent = blake2b(parent + bytes(tokens[start : start + block_bytes]), digest_size=KEY_BYTES).digest()
        keys.append(parent)
    return tuple(keys)


class SharedBlockPool(BlockPool):
    """A `BlockPool` whose blocks may be held several times, and be found again by what they hold."""

    def __init__(self, total: int, block_tokens: int) -> None:
        super().__init__(total, block_tokens)
        self._holders = [0] * total
        self._key_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self.evicted = 0
        """Blocks that were forgotten for others so far."""

    @property
    def free(self) -> int:
        """Blocks that can be had: those that nobody holds, idle ones among them."""
        return len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """Blocks that nobody holds and that would be found again."""
        return len(self._idle)

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """Ids of `count` blocks held once, or None (and nothing changes) if there are not so many.

        Idle blocks are forgotten only where no others are left.
        """
        if count > self.free:
            return None
        while len(self._free) < count:
            block, _ = self._idle.popitem(last=False)
            del self._block_of[self._key_of.pop(block)]
            self._held[block] = 0
            self._free.append(block)
            self.evicted += 1
        blocks = super().allocate(count)
        for block in blocks or ():
            self._holders[block] = 1
        return blocks

    def release(self, blocks: tuple[int, ...]) -> None:
        """One holder less for each. Raises MachineError for one that nobody holds, and changes nothing."""
        if len(set(blocks)) != len(blocks):
            raise MachineError("a KV block is given back twice")
        for block in blocks:
            if not (0 <= block < self.total and self._holders[block]):
                raise MachineError(f"KV block {block} is not held")
        # The deepest first, so that a prefix is idle longer than what is built on it.
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if block in self._key_of:
                self._idle[block] = None
            else:
                self._held[block] = 0
                self._free.append(block)

    def find(self, keys: Sequence[bytes]) -> tuple[int, ...]:
        """The blocks of the longest known prefix of `keys`, each with a holder more."""
        found: list[int] = []
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                break
            self._idle.pop(block, None)
            self._holders[block] += 1
            found.append(block)
        return tuple(found)

    def held_prefix(self, keys: Sequence[bytes]) -> int:
        """How many blocks of the known prefix of `keys` somebody holds: sharing those takes nothing from `free`."""
        count = 0
        for key in keys:
            block = self._block_of.get(key)
            if block is None or not self._holders[block]:
                break
            count += 1
        return count

    def remember(self, keys: Sequence[bytes], blocks: tuple[int, ...]) -> tuple[int, ...]:
        """The first of `blocks` hold what `keys` say, from now on for everybody. Returns the holder's blocks.

        Where another sequence was quicker, its block takes the place of the holder's own, which is given back.
        """
        kept = list(blocks)
        for place, key in enumerate(keys):
            mine, known = kept[place], self._block_of.get(key)
            if known is None:
                self._key_of[mine] = key
                self._block_of[key] = mine
            elif known != mine:
                self._idle.pop(known, None)
                self._holders[known] += 1
                kept[place] = known
                self.release((mine,))
        return tuple(kept)
