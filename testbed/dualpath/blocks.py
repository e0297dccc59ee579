"""KV blocks: ids that follow from the tokens, sizes of Layer and Full Blocks, and the images that stand for them.

A Layer Block is [1, tokens, bytes], a Full Block [layers, tokens, bytes]: n Layer Blocks one after another *are* the
Full Block, so nothing is ever converted (DualPath A.5, design dualpath 1.9). A block's id is a hash of its parent's id
and its own tokens, so ids make a trie and equal prefixes have equal blocks.

An emulation cannot carry 16 MiB a block, so memory holds images: one byte for `scale` true ones, never fewer than a
stamp. Each Layer Block's image carries block id, layer, tokens and a checksum, and its body follows from these, so
every copy can be checked wherever it arrives. Sizes that are logged are true ones. This file knows no time.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence

import msgspec

from testbed.serving.turns import TokenRun, cut, length
from testbed.units import image_bytes

_STAMP = struct.Struct("<QHHI")
"""Block id, layer, tokens in the block, CRC-32 of the three and of the body."""
_HEAD = struct.Struct("<QHH")
STAMP_BYTES = _STAMP.size
ROOT = 0
"""Parent of a prompt's first block."""


class BadBlock(Exception):
    """An image that is not the Layer Block it should be."""

    def __init__(self, block: int, layer: int, reason: str) -> None:
        self.block = block
        self.layer = layer
        super().__init__(f"block {block:016x} layer {layer}: {reason}")


class BlockShape(msgspec.Struct, frozen=True):
    """Sizes of a model's blocks. Raises ValueError for a shape that is none."""

    layers: int
    tokens: int
    """Tokens in a block."""
    token_layer_bytes: int
    """True bytes of KV that one token has in one layer."""
    scale: int = 1
    """True bytes for which an image has one."""

    def __post_init__(self) -> None:
        """Checks that there is something."""
        if min(self.layers, self.tokens, self.token_layer_bytes, self.scale) < 1:
            raise ValueError(f"a block's shape has a part below 1: {self}")

    @property
    def layer_bytes(self) -> int:
        """True bytes of a Layer Block."""
        return self.tokens * self.token_layer_bytes

    @property
    def full_bytes(self) -> int:
        """True bytes of a Full Block."""
        return self.layers * self.layer_bytes

    @property
    def layer_image(self) -> int:
        """Bytes of a Layer Block's image."""
        return image_bytes(self.layer_bytes, self.scale)

    @property
    def full_image(self) -> int:
        """Bytes of a Full Block's image."""
        return self.layers * self.layer_image

    @property
    def token_bytes(self) -> int:
        """True bytes of a token's KV in all layers."""
        return self.layers * self.token_layer_bytes

    def blocks_of(self, tokens: int) -> int:
        """Blocks that `tokens` tokens occupy, the last one perhaps in part."""
        return -(-tokens // self.tokens)

    def true_bytes(self, image_bytes: int) -> int:
        """True bytes for so many of images, as the wires count them."""
        return image_bytes * self.scale


def block_ids(runs: Sequence[TokenRun], block_tokens: int) -> tuple[int, ...]:
    """Ids of the blocks of a sequence of tokens, in order, the last one perhaps of fewer tokens.

    63 bits, never 0; a block in part has another id than the full one that it becomes.
    """
    ids: list[int] = []
    parent = ROOT
    total = length(runs)
    for first in range(0, total, block_tokens):
        parent = _id(parent, cut(runs, first, min(block_tokens, total - first)))
        ids.append(parent)
    return tuple(ids)


def _id(parent: int, runs: Iterable[TokenRun]) -> int:
    words = [parent, *(word for run in runs for word in (run.stream, run.first, run.count))]
    digest = hashlib.blake2b(struct.pack(f"<{len(words)}Q", *words), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 or 1


def layer_image(shape: BlockShape, block: int, layer: int, tokens: int) -> bytes:
    """The image of one Layer Block of `tokens` tokens: stamp and body."""
    head = _HEAD.pack(block, layer, tokens)
    room = shape.layer_image - STAMP_BYTES
    seed = hashlib.blake2b(head, digest_size=64).digest()
    body = (seed * (room // 64 + 1))[:room]
    return _STAMP.pack(block, layer, tokens, zlib.crc32(body, zlib.crc32(head))) + body


def full_image(shape: BlockShape, block: int, tokens: int) -> bytes:
    """The image of a Full Block: its Layer Blocks, one after another."""
    return b"".join(layer_image(shape, block, layer, tokens) for layer in range(shape.layers))


def check_layer(shape: BlockShape, image: bytes | bytearray | memoryview, block: int, layer: int) -> int:
    """Checks one Layer Block's image and returns how many tokens it holds. Raises `BadBlock`."""
    if len(image) != shape.layer_image:
        raise BadBlock(block, layer, f"{len(image)} bytes in place of {shape.layer_image}")
    found, at, tokens, checksum = _STAMP.unpack_from(image)
    if (found, at) != (block, layer):
        raise BadBlock(block, layer, f"holds block {found:016x} layer {at}")
    if zlib.crc32(memoryview(image)[STAMP_BYTES:], zlib.crc32(_HEAD.pack(found, at, tokens))) != checksum:
        raise BadBlock(block, layer, "its checksum does not fit its bytes")
    return int(tokens)


def check_full(shape: BlockShape, image: bytes | bytearray | memoryview, block: int) -> int:
    """Checks a Full Block's image, layer by layer, and returns how many tokens it holds. Raises `BadBlock`."""
    if len(image) != shape.full_image:
        raise BadBlock(block, 0, f"{len(image)} bytes in place of {shape.full_image}")
    view, size = memoryview(image), shape.layer_image
    tokens = [check_layer(shape, view[at : at + size], block, at // size) for at in range(0, len(view), size)]
    return tokens[0]
