"""How fast a storage target is read, a chunk at a time as a storage node does: `python -m emulators.storage_bench`.

Prints a JSON list of MB/s, one a repeat: `--folder` holds the chunks, each of `--size` bytes, all of which are read in
a repeat, in an order that the disk cannot foresee.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from emulators.storage_target import StorageTarget

_MB = 1_000_000


def rates(target: StorageTarget, size: int, chunks: int, repeats: int) -> list[float]:
    """MB/s of each repeat. Raises StorageFault, OSError."""
    names = [f"chunk{number}" for number in range(chunks)]
    for name in names:
        target.write(name, 1, secrets.token_bytes(size))
    found = []
    order = Random(1)
    for _ in range(repeats):
        order.shuffle(names)
        begin = time.perf_counter()
        for name in names:
            target.read(name)
        found.append(size * chunks / _MB / (time.perf_counter() - begin))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Reading speed of a storage target.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True, help="bytes of a chunk")
    parser.add_argument("--chunks", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    target = StorageTarget(options.folder, synced=False)
    print(json.dumps(rates(target, options.size, options.chunks, options.repeats)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
