"""The pool of KV blocks of one device: paged KV cache, allocated whole and given back whole.

A sequence is given the blocks of its prompt and its longest answer when it is admitted, so it can never run out in
the middle and nobody is ever evicted (the "guaranteed no evict" policy of TensorRT-LLM, whose engines Blink runs).
The pool knows blocks, not sequences.
"""

from __future__ import annotations

from testbed.machine import MachineError


class BlockPool:
    """`total` blocks with ids 0 to `total` - 1."""

    def __init__(self, total: int, block_tokens: int) -> None:
        self.total = total
        self.block_tokens = block_tokens
        self._free = list(range(total - 1, -1, -1))
        self._held = bytearray(total)

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def needed(self, tokens: int) -> int:
        """Blocks that `tokens` tokens occupy."""
        return -(-tokens // self.block_tokens)

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """Ids of `count` blocks, or None (and nothing changes) if there are not so many."""
        if count > len(self._free):
            return None
        blocks = tuple(self._free[len(self._free) - count :][::-1])
        del self._free[len(self._free) - count :]
        for block in blocks:
            self._held[block] = 1
        return blocks

    def release(self, blocks: tuple[int, ...]) -> None:
        """Gives blocks back. Raises MachineError for one that is not held, and changes nothing."""
        if len(set(blocks)) != len(blocks):
            raise MachineError("a KV block is given back twice")
        for block in blocks:
            if not (0 <= block < self.total and self._held[block]):
                raise MachineError(f"KV block {block} is not held")
        for block in reversed(blocks):
            self._held[block] = 0
            self._free.append(block)
