"""The data path: one table of hops for both read paths, and how many bytes a turn sends over which resource.

Steps are those of design dualpath 1.6 (the paper's Fig. 4). One RDMA operation covers consecutive steps, so a hop is
what can be measured: `pe3-4` is steps 3 and 4 of the PE read path. The hop model at the end is arithmetic on plain
integers; runs are checked against it. This file knows no node, no time and no machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from testbed.dualpath.parameters import DualPathParameters
from testbed.network.host_design import Copies


class Hop(msgspec.Struct, frozen=True):
    """One row of `HOPS`."""

    what: str
    """For people."""
    block: Literal["full", "layer"]
    """What is moved: Full Blocks, or Layer Blocks of one layer."""
    repeats: Literal["once", "layers"]
    """How often for one turn."""
    crossed: tuple[str, ...]
    """Resources that the bytes cross, with {source} and {target} as NODE.PORT and {source_node}, {target_node}; {up},
    {down} and {within} are what a copy of that direction crosses, {buffer} and {pool} the memory that these lie in."""


class DataPath(msgspec.Struct, frozen=True):
    """What of a system's data path may be other than the paper's."""

    copies: Copies = "cnic"
    buffer: Literal["dram", "cxl"] = "dram"
    """The memory that PE and DE buffers lie in."""
    pool: Literal["dram", "cxl"] = "dram"
    """That of the KV pool, where there is one."""


PAPERS_PATH = DataPath()


def data_path(parameters: DualPathParameters) -> DataPath:
    """The data path of a system."""
    return DataPath(
        copies=parameters.copy,
        buffer="cxl" if parameters.cxl == "buffers" else "dram",
        pool="cxl" if parameters.cxl == "pool" else "dram",
    )


_BOTH_WAYS = ("{source}.cnic_read", "{target}.cnic_write")
_COPIES: Mapping[Copies, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "cnic": dict.fromkeys(("{up}", "{down}", "{within}"), _BOTH_WAYS),
        "copy_engine": {
            "{up}": ("{source}.copy_engine", "{target}.cnic_write"),
            "{down}": ("{source}.copy_engine", "{source}.cnic_read"),
            "{within}": ("{source}.copy_engine", *_BOTH_WAYS),
        },
        "nic_integrated": {
            "{up}": ("{target}.cnic_write",), "{down}": ("{source}.cnic_read",), "{within}": _BOTH_WAYS,
        },
    }
)  # fmt: skip
"""A loop-back crosses the CNIC's PCIe link both ways, others cross it once, towards their target; bytes that stay in
host memory come and go."""
_STORAGE_READ = ("{source}.snic_tx", "{target}.snic_rx", "{target_node}.{buffer}")
_UP = ("{source_node}.{buffer}", "{up}")
"""Host to device."""
_TO_BUFFER = ("{source}.cnic_read", "{source}.wire", "{target}.wire", "{target}.cnic_write", "{target_node}.{buffer}")
_TO_HBM = ("{source}.cnic_read", "{source}.wire", "{target}.wire", "{target}.cnic_write")

HOPS: Mapping[str, Hop] = MappingProxyType(
    {
        "pe1-2": Hop("storage to PE buffer", "full", "once", _STORAGE_READ),
        "pe3-4": Hop("PE buffer to PE HBM", "layer", "layers", _UP),
        "pe5-7": Hop("PE HBM to DE buffer, hit and miss", "layer", "layers", _TO_BUFFER),
        "pe5-7-hbm": Hop("PE HBM to DE HBM, hit and miss", "layer", "layers", _TO_HBM),
        "pe8-9": Hop("DE buffer to DE HBM", "full", "once", _UP),
        "de1-2": Hop("storage to DE buffer", "full", "once", _STORAGE_READ),
        "de3-5": Hop("DE buffer to PE HBM", "layer", "layers", ("{source_node}.{buffer}", *_TO_HBM)),
        "de3-5-hbm": Hop("earlier chunks, DE HBM to PE HBM", "layer", "layers", _TO_HBM),
        "de-miss": Hop("PE HBM to DE buffer, miss only", "layer", "layers", _TO_BUFFER),
        "de-miss-hbm": Hop("PE HBM to DE HBM, miss only", "layer", "layers", _TO_HBM),
        "de6-7": Hop("DE buffer to DE HBM", "full", "once", _UP),
        "persist-copy": Hop("DE HBM to DE buffer", "full", "once", ("{down}", "{target_node}.{buffer}")),
        "persist-write": Hop(
            "DE buffer to storage", "full", "once", ("{source_node}.{buffer}", "{source}.snic_tx", "{target}.snic_rx")
        ),
        "pool-local": Hop(
            "DRAM pool to buffer of its own node", "full", "once",
            ("{source_node}.{pool}", "{within}", "{target_node}.{buffer}"),
        ),
        "pool-remote": Hop(
            "DRAM pool to buffer of another node", "full", "once", ("{source_node}.{pool}", *_TO_BUFFER)
        ),
        "replicate": Hop("storage to storage", "full", "once", ("{source}.snic_tx", "{target}.snic_rx")),
    }
)  # fmt: skip
"""Every hop. `-hbm` rows stand where KV lands straight in the decode engine's HBM (`decode_landing`), `pool-` rows
where there is a DRAM pool."""


def crossed(hop: str, source: str, target: str, path: DataPath = PAPERS_PATH) -> tuple[str, ...]:
    """Resources that a transfer of `hop` crosses between two ports, as pe0.cnic3. Raises KeyError for no hop."""
    copies = _COPIES[path.copies]
    names = {
        "buffer": path.buffer,
        "pool": path.pool,
        "source": source,
        "target": target,
        "source_node": source.partition(".")[0],
        "target_node": target.partition(".")[0],
    }
    return tuple(name.format(**names) for template in HOPS[hop].crossed for name in copies.get(template, (template,)))


class TurnShape(msgspec.Struct, frozen=True):
    """What the hop model needs to know of a turn."""

    prompt_tokens: int
    hit_blocks: int
    prefill_blocks: int
    """Hit blocks that the prefill side reads."""
    persisted_blocks: int = 0
    """Full Blocks of new KV that are written to storage, of the prompt and of the answer."""
    chunks: tuple[tuple[int, int], ...] = ()
    """(cached, computed) tokens of each forward batch that the turn had a part in; empty: one for the whole miss."""


def hop_blocks(turn: TurnShape, block_tokens: int, landing: str = "buffer", replicas: int = 1) -> dict[str, int]:
    """Blocks that each hop carries for a turn; for a hop of Layer Blocks, in every layer."""
    hit, here = turn.hit_blocks, turn.prefill_blocks
    prompt = -(-turn.prompt_tokens // block_tokens)
    chunks = turn.chunks or ((hit * block_tokens, turn.prompt_tokens - hit * block_tokens),)
    fetched = [-(-cached // block_tokens) for cached, _ in chunks]
    sent = sum(-(-(cached + new) // block_tokens) - cached // block_tokens for cached, new in chunks)
    suffix = "-hbm" if landing == "hbm" else ""
    whole = here == hit
    earlier = sum(blocks - hit for blocks in fetched)
    blocks = {
        "pe1-2": here,
        "de1-2": hit - here,
        "pe3-4": here * len(chunks),
        "pe5-7" + suffix: here + (sent if whole else 0),
        "de-miss" + suffix: 0 if whole else sent,
        "persist-copy": turn.persisted_blocks,
        "persist-write": turn.persisted_blocks,
        "replicate": turn.persisted_blocks * (replicas - 1),
    }
    blocks["de3-5"] = (hit - here) * len(chunks)
    blocks["de3-5" + suffix] = blocks.get("de3-5" + suffix, 0) + earlier
    blocks["pe8-9" if whole else "de6-7"] = prompt if landing == "buffer" else hit - here
    return {hop: count for hop, count in blocks.items() if count}


def bytes_by_resource(
    turns: Sequence[TurnShape],
    *,
    block_tokens: int,
    full_bytes: int,
    landing: str = "buffer",
    replicas: int = 1,
    path: DataPath = PAPERS_PATH,
) -> dict[str, int]:
    """True bytes of KV that these turns send over each kind of resource.

    Names are as `TransferFinished.crossed` has them with roles for nodes and no numbers: pe.cnic.cnic_read, de.dram,
    storage.snic.snic_tx. `full_bytes` are those of a Full Block; a hop of Layer Blocks carries as many in all layers.
    """
    total: dict[str, int] = {}
    for turn in turns:
        for hop, blocks in hop_blocks(turn, block_tokens, landing, replicas).items():
            for resource in crossed(hop, *ENDS[hop], path):
                total[resource] = total.get(resource, 0) + blocks * full_bytes
    return total


ENDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "pe1-2": ("storage.snic", "pe.snic"),
        "pe3-4": ("pe.cnic", "pe.cnic"),
        "pe5-7": ("pe.cnic", "de.cnic"),
        "pe5-7-hbm": ("pe.cnic", "de.cnic"),
        "pe8-9": ("de.cnic", "de.cnic"),
        "de1-2": ("storage.snic", "de.snic"),
        "de3-5": ("de.cnic", "pe.cnic"),
        "de3-5-hbm": ("de.cnic", "pe.cnic"),
        "de-miss": ("pe.cnic", "de.cnic"),
        "de-miss-hbm": ("pe.cnic", "de.cnic"),
        "de6-7": ("de.cnic", "de.cnic"),
        "persist-copy": ("de.cnic", "de.cnic"),
        "persist-write": ("de.snic", "storage.snic"),
        "pool-local": ("pe.cnic", "pe.cnic"),
        "pool-remote": ("de.cnic", "pe.cnic"),
        "replicate": ("storage.snic", "storage.snic"),
    }
)
"""Role and kind of port at both ends of each hop."""
