"""Letters of storage: clients and servers, and the servers of a chain (docs/models/storage.md).

A part of `testbed.dualpath.letters`.
"""

from __future__ import annotations

import msgspec

from testbed.dualpath.letter import Letter


class ChunkPlace(msgspec.Struct, frozen=True, array_like=True):
    """A chunk, and where its image is in the memory of the letter's writer."""

    block: int
    address: int


class ChunkRefused(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a batch that could not be served."""

    place: int
    """Of the chunk in the batch, from 0."""
    reason: str


class ReadChunks(Letter, frozen=True, tag="read_chunks"):
    """From a storage client: WRITE these chunks to my memory. Answered by one or more `ChunksRead`."""

    node: str
    batch: int
    """The client's own number."""
    hop: str
    request: str
    port: str
    """The client's port, as snic0."""
    key: int
    until: int
    """True time after which no WRITE may be posted: the client's memory may be another's by then."""
    chunks: tuple[ChunkPlace, ...]


class ChunksRead(Letter, frozen=True, tag="chunks_read"):
    """From a storage server: so many more chunks of the batch are in the client's memory, or will not be."""

    node: str
    batch: int
    read: tuple[int, ...]
    """Places in the batch."""
    refused: tuple[ChunkRefused, ...] = ()


class WriteChunks(Letter, frozen=True, tag="write_chunks"):
    """From a storage client to the head of the chunks' chains: READ them from my memory and keep them.

    Answered by one or more `ChunksWritten`.
    """

    node: str
    batch: int
    request: str
    port: str
    key: int
    chunks: tuple[ChunkPlace, ...]


class ChunksWritten(Letter, frozen=True, tag="chunks_written"):
    """From the head: so many more chunks of the batch are committed on every live node of their chain, or will not."""

    node: str
    batch: int
    written: tuple[int, ...]
    refused: tuple[ChunkRefused, ...] = ()


class ForwardChunk(Letter, frozen=True, tag="forward_chunk"):
    """From a storage node to the next of the chain: READ this version from my memory and keep it."""

    node: str
    request: str
    block: int
    version: int
    address: int
    key: int


class ChunkStored(Letter, frozen=True, tag="chunk_stored"):
    """The answer to `ForwardChunk`: committed from here to the tail, or failed there."""

    node: str
    block: int
    version: int
    failure: str = ""


class AskVersion(Letter, frozen=True, tag="ask_version"):
    """From a storage node that has an uncommitted version to the tail: which one is committed (CRAQ)?"""

    node: str
    block: int


class TellVersion(Letter, frozen=True, tag="tell_version"):
    """The answer to `AskVersion`; 0 where there is none."""

    node: str
    block: int
    version: int


class Knock(Letter, frozen=True, tag="knock"):
    """To a storage node that has not answered for long. That it can be delivered is all that it asks."""

    node: str
