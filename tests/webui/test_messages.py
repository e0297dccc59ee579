"""The queue without a server: whoever looks finds whole messages or none."""

# mypy: disable-error-code="no-untyped-call"
# kombu has no types of its own.
from __future__ import annotations

import threading
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu.connection import Connection

import webui.celery  # noqa: F401  # names the transport
from webui.messages import WholeMessages

MESSAGES = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "messages").mkdir()
    return tmp_path


def connect(folder: Path) -> Any:
    messages = str(folder / "messages")
    options = {"data_folder_in": messages, "data_folder_out": messages, "control_folder": str(folder / "control")}
    return Connection("filesystem://localhost/", transport_options=options)


def test_a_hasty_reader_takes_every_message_once_and_whole(folder: Path) -> None:
    """Kombu's own way of putting them gave this reader a JSONDecodeError, which ends a worker."""

    def put(first: int) -> None:
        with connect(folder) as connection:
            for number in range(first, first + MESSAGES):
                connection.default_channel._put("runs", {"number": number, "filling": "x" * 5000})

    writers = [threading.Thread(target=put, args=(first,)) for first in (0, MESSAGES)]
    with connect(folder) as connection:
        channel = connection.default_channel
        assert isinstance(channel, WholeMessages)
        for writer in writers:
            writer.start()
        found: list[int] = []
        while len(found) < 2 * MESSAGES:
            try:
                found.append(channel._get("runs")["number"])
            except Empty:
                assert any(writer.is_alive() for writer in writers) or channel._size("runs"), found
        for writer in writers:
            writer.join()
    assert sorted(found) == list(range(2 * MESSAGES))


def test_the_oldest_message_comes_first_and_half_a_one_is_none(folder: Path) -> None:
    with connect(folder) as connection:
        channel = connection.default_channel
        channel._put("runs", {"number": 1})
        (folder / "messages" / "0_x.runs.part").write_text("{")
        assert channel._size("runs") == 1
        assert channel._get("runs") == {"number": 1}
        with pytest.raises(Empty):
            channel._get("runs")
