"""Reading speed of the image that a storage node of a run gets: `python -m topologies.storage_bench SIZE`.

Makes an image as a run does, has `emulators.storage_bench` read chunks of SIZE bytes from it, prints its list of MB/s
and takes the image down.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from topologies.processes import module_command
from topologies.programs import ProgramFailed, run
from topologies.registry import RunRecord, RunRegistry, mark_of
from topologies.storage_image import ImageFault, mount_image, unmount

_IMAGE = 128 << 20


def measure(size: int) -> str:
    """The list, as JSON. Raises ImageFault, ProgramFailed."""
    registry = RunRegistry(secrets.token_hex(3))
    with tempfile.TemporaryDirectory(prefix="looplane-") as folder:
        owner = mark_of(os.getpid(), "bench")
        assert owner is not None
        registry.create(RunRecord(registry.label, folder, owner, "namespace"))
        try:
            point = mount_image(registry, "storage0", _IMAGE, Path(folder))
            try:
                return run(
                    module_command("emulators.storage_bench", "--folder", str(point), "--size", str(size)),
                    environment=dict(os.environ),
                )
            finally:
                unmount(point)
        finally:
            registry.remove()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 with one line for an image that cannot be made."""
    (size,) = sys.argv[1:] if arguments is None else arguments
    try:
        print(measure(int(size)), end="")
    except (ImageFault, ProgramFailed) as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
