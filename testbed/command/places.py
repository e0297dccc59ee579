"""Where Looplane keeps things: the state folder, the runs, the source tree and its fixtures."""

from __future__ import annotations

import os
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
"""The top of the source tree."""

EXPERIMENTS = SOURCE / "fixtures" / "experiments"
"""The shipped experiments."""


def is_root() -> bool:
    """Whether this process may make namespaces and containers."""
    return os.geteuid() == 0


def state_folder() -> Path:
    """`$LOOPLANE_STATE`, else /var/lib/looplane for root and a folder of the user's own in /var/tmp."""
    chosen = os.environ.get("LOOPLANE_STATE")
    if chosen:
        return Path(chosen).resolve()
    return Path("/var/lib/looplane") if is_root() else Path(f"/var/tmp/looplane-{os.getuid()}")


def runs_folder() -> Path:
    """Where run folders are made unless `--out` says otherwise: `$LOOPLANE_RUNS`, which several benches share."""
    chosen = os.environ.get("LOOPLANE_RUNS")
    return Path(chosen).resolve() if chosen else state_folder() / "runs"
