"""The systems that DualPath is compared with, as values of its own parameters (design dualpath 1.11, 1.12, 1.14).

A difference between two runs is therefore a difference in this file. Each class overrides defaults and narrows what
makes it the system that it is; everything else may still be set. Paper: as `testbed.dualpath.parameters`. Knows no
machine.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from testbed.dualpath.parameters import DualPathParameters, Duration
from testbed.units import MICROSECOND, MILLISECOND


class BasicParameters(DualPathParameters, frozen=True, forbid_unknown_fields=True):
    """Basic: prefill nodes read, layers of a whole batch at once, engines in turn. Paper: "unmodified framework"."""

    read_path: Literal["prefill"] = "prefill"
    """Paper: the only path there is without DualPath."""
    placement: Literal["scheduled", "round_robin", "affinity"] = "round_robin"
    """Not stated. Our choice, since the ablation adds scheduling as its last step."""
    quota: Duration | None = None
    """Paper, A.4: the quota is of DualPath and Oracle."""
    layerwise: bool = False
    """Paper: layerwise prefill is the ablation's first step."""


class BasicLayerwiseParameters(BasicParameters, frozen=True, forbid_unknown_fields=True):
    """The ablation's first step: Basic that holds the KV of one layer at a time. Paper: 17 % less JCT."""

    layerwise: Literal[True] = True
    """What the step adds."""


class RoundRobinParameters(DualPathParameters, frozen=True, forbid_unknown_fields=True):
    """The ablation's second step: both read paths, each in turn, engines too. Paper: 38 % less JCT than Basic."""

    read_path: Literal["round_robin"] = "round_robin"
    """What the step adds."""
    placement: Literal["scheduled", "round_robin", "affinity"] = "round_robin"
    """As Basic."""
    quota: Duration | None = None
    """As Basic: the quota is part of scheduling (paper, 6.2)."""


class OracleParameters(DualPathParameters, frozen=True, forbid_unknown_fields=True):
    """Oracle: DualPath with all disk reads, host-device copies and PD transfers bypassed (paper, 1.11)."""

    read_path: Literal["bypass"] = "bypass"
    """Compute alone is left."""


class DramPoolParameters(BasicParameters, frozen=True, forbid_unknown_fields=True):
    """A distributed DRAM pool of KV in front of storage, with affinity scheduling: Mooncake, SGL(MC)."""

    placement: Literal["scheduled", "round_robin", "affinity"] = "affinity"
    """Paper, 1.14: affinity scheduling, to the prefill node that holds most of a prompt's KV."""
    dram_pool_bytes: Annotated[int, msgspec.Meta(ge=1, le=10**13)] = 1_500_000_000_000
    """Paper, A.4: SGL(MC) has 1.5 TB a node."""
    dram_pool_squeeze_bytes: Annotated[int, msgspec.Meta(ge=0, le=10**13)] = 0
    """None in the paper's runs; RL training that offloads its optimizer takes nearly all of it (1.14)."""


class HCacheParameters(BasicParameters, frozen=True, forbid_unknown_fields=True):
    """HCache-like: Basic that fetches a share of a hit's KV and restores the rest by compute."""

    fetch_percent: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    """HCache keeps hidden states, half of the KV bytes under multi-head attention. Our models have GQA or MLA, whose KV
    is smaller than that, so this is a what-if."""


class TardisParameters(BasicParameters, frozen=True, forbid_unknown_fields=True):
    """TARDIS-like: a GPU-centric KV service; retrieval without the host's software."""

    retrieval_overhead: Duration = 20 * MICROSECOND
    """Not known to us; our choice: a few PCIe round trips and a kernel. Compare with `FileStackParameters`."""


class PhoenixParameters(BasicParameters, frozen=True, forbid_unknown_fields=True):
    """Phoenix-like: a direct-storage stack without phony buffers."""

    retrieval_overhead: Duration = 100 * MICROSECOND
    """Not known to us; our choice: one trip through the kernel's block layer. Compare with `FileStackParameters`."""


class FileStackParameters(BasicParameters, frozen=True, forbid_unknown_fields=True):
    """Basic over an ordinary file stack, which the two above shorten. The paper's Basic has 3FS's own client."""

    retrieval_overhead: Duration = 2 * MILLISECOND
    """Not known to us; our choice: open, metadata, page cache and copies of one turn's files."""
