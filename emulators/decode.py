"""A decode node's process: `python -m emulators.decode --run RUNFOLDER --node NAME` (see `emulators.engines`)."""

from __future__ import annotations

from emulators.engines import build
from emulators.node_life import run_node

if __name__ == "__main__":
    raise SystemExit(run_node(build))
