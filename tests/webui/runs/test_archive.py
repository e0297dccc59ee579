"""All of a run's files as one zip, made while it is sent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

from webui.runs import archive as module
from webui.runs.archive import archive, archive_names

RUN = "20261130-120000-abcdef"


def test_the_archive_has_every_file_that_may_be_fetched_and_none_else(
    put_run: Callable[[str], Path],
) -> None:
    folder = put_run(RUN)
    (folder / "control" / "secret.json").write_text("{}")
    (folder / "captures").mkdir(exist_ok=True)
    (folder / "captures" / "gpu0.cnic0.pcap").write_bytes(b"\xd4\xc3\xb2\xa1" * 5000)
    made = zipfile.ZipFile(io.BytesIO(b"".join(archive(RUN))))
    assert made.testzip() is None
    assert made.namelist() == [f"{RUN}/{name}" for name in archive_names(RUN)]
    assert f"{RUN}/captures/gpu0.cnic0.pcap" in made.namelist()
    assert not [name for name in made.namelist() if "control" in name]
    for name in archive_names(RUN):
        assert made.read(f"{RUN}/{name}") == (folder / name).read_bytes(), name


def test_it_comes_in_pieces(put_run: Callable[[str], Path]) -> None:
    folder = put_run(RUN)
    noise = bytes((value * 2654435761 >> 13) & 255 for value in range(3 * module.PIECE))
    (folder / "captures").mkdir(exist_ok=True)
    (folder / "captures" / "a.pcap").write_bytes(noise)
    pieces = list(archive(RUN))
    assert len(pieces) > 3
    assert all(pieces)
    assert max(map(len, pieces)) < 3 * module.PIECE
