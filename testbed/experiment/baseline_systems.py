"""Rows of the systems that DualPath is compared with: its own machines, with the parameters of each foil."""

from __future__ import annotations

from testbed.baselines.parameters import (
    BasicLayerwiseParameters,
    BasicParameters,
    DramPoolParameters,
    FileStackParameters,
    HCacheParameters,
    OracleParameters,
    PhoenixParameters,
    RoundRobinParameters,
    TardisParameters,
)
from testbed.experiment.dualpath_system import DUALPATH

_PAGE = "docs/models/baselines.md"

BASELINES = tuple(
    DUALPATH._replace(kind=kind, parameters=parameters, page=page)
    for kind, parameters, page in (
        ("basic", BasicParameters, _PAGE),
        ("basic_layerwise", BasicLayerwiseParameters, _PAGE),
        ("dual_path_round_robin", RoundRobinParameters, _PAGE),
        ("oracle", OracleParameters, _PAGE),
        ("dram_pool", DramPoolParameters, "docs/models/dram_pool.md"),
        ("hcache", HCacheParameters, _PAGE),
        ("tardis", TardisParameters, _PAGE),
        ("phoenix", PhoenixParameters, _PAGE),
        ("file_stack", FileStackParameters, _PAGE),
    )
)
"""One row for each."""
