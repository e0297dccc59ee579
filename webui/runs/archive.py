"""Everything of a run folder that people may fetch as one zip, made while it is sent: nothing of it is held whole."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

from webui.runs.folder import download_path, downloads_of, trials_of

PIECE = 1 << 18
"""Bytes that are read at a time."""


class _Outlet(io.RawIOBase):
    """What the zip is written to: keeps what was written until it is taken. Not seekable, and zipfile copes."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        """What was written since the last call."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def archive_names(run_id: str) -> list[str]:
    """Names of the files that go into the archive, relative to the run folder."""
    names = [file.path for trial in ("", *trials_of(run_id)) for file in downloads_of(run_id, trial)]
    return list(dict.fromkeys(names))


def archive(run_id: str) -> Iterator[bytes]:
    """The zip in pieces. A file that goes away meanwhile is left out; one that grows is taken as far as it was read."""
    outlet = _Outlet()
    with zipfile.ZipFile(outlet, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        for name in archive_names(run_id):
            path = download_path(run_id, name)
            if path is None:
                continue
            entry = zipfile.ZipInfo.from_file(path, f"{run_id}/{name}", strict_timestamps=False)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with path.open("rb") as file, made.open(entry, "w", force_zip64=True) as target:
                while piece := file.read(PIECE):
                    target.write(piece)
                    if ready := outlet.take():
                        yield ready
    yield outlet.take()
