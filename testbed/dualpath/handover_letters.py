"""Letters by which the two sides of a turn hand its KV over, layer by layer (docs/models/dualpath.md).

A part of `testbed.dualpath.letters`.
"""

from __future__ import annotations

from testbed.dualpath.letter import Letter


class BufferGranted(Letter, frozen=True, tag="granted"):
    """From the decode leader to the prefill leader: where the turn's KV is to be written, layer by layer."""

    name: str
    region: str
    """The DE buffer, or hbm3 where KV lands straight in HBM."""
    extents: tuple[tuple[int, int], ...]
    """(first slot, slots) of Full Blocks; within an extent layers follow one another, blocks within each layer."""
    skipped: int
    """Hit blocks of the decode side that have no place among these slots."""


class HitsReady(Letter, frozen=True, tag="hits_ready"):
    """From the decode leader to the prefill leader: the hit blocks of the decode side are in its buffer."""

    name: str


class LayerWanted(Letter, frozen=True, tag="layer_wanted"):
    """From a prefill engine to the decode leader: WRITE blocks of one layer into my HBM, `count` from `first` on."""

    name: str
    node: str
    engine: int
    layer: int
    first: int
    count: int
    extents: tuple[tuple[int, int], ...]
    """(first slot, slots) of Layer Blocks of the HBM."""
    ticket: int


class LayerSent(Letter, frozen=True, tag="layer_sent"):
    """The answer to `LayerWanted`, once the WRITEs are complete."""

    ticket: int
    failure: str = ""


class PrefillDone(Letter, frozen=True, tag="prefill_done"):
    """From the prefill leader to the decode leader: all KV of the prompt is at the place that was granted."""

    name: str
