"""A device process that goes, lies or says nothing: its launches fail at once, and then the node does."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from emulators.accelerator_protocol import VERSION, Cancel, Done, Failed, Lines, Open, Opened, to_device
from emulators.device_accelerator import AcceleratorLost, DeviceExecutor
from emulators.numpy_device import main
from testbed.serving.engine import Lane
from testbed.serving.executor import CANCELLED, Ended
from testbed.serving.graph_cache import DECODE, PREFILL, Graph

GRAPH = Graph(DECODE, 2, 64)
LANES = (Lane(1, 0, 30, (1, 2), 1.0, 1.0, 1, True),)
OPEN = Open(VERSION, "llama-3-8b", 80, 8192)
FarEnd: TypeAlias = Callable[..., tuple[DeviceExecutor, Lines]]


@pytest.fixture
def far_end(tmp_path: Path) -> Iterator[FarEnd]:
    """An executor whose device is the test: `make(patience_s)` opens it and gives both ends."""
    opened: list[socket.socket | DeviceExecutor] = []

    def make(patience_s: float = 5.0) -> tuple[DeviceExecutor, Lines]:
        path = tmp_path / f"device{len(opened)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(1)
        ends: list[Lines] = []

        def accept() -> None:
            lines = Lines(listener.accept()[0])
            assert isinstance(to_device(lines.receive()[0]), Open)
            lines.send(Opened("the test"))
            ends.append(lines)

        thread = threading.Thread(target=accept)
        thread.start()
        executor = DeviceExecutor.connect(path, OPEN, patience_s=patience_s)
        thread.join()
        opened.extend([executor, listener, ends[0].socket])
        return executor, ends[0]

    yield make
    for each in opened:
        each.close()


def hear(executor: DeviceExecutor, count: int = 1, seconds: float = 5.0) -> list[Ended]:
    found: list[Ended] = []
    limit = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < limit, f"only {found} after {seconds} s"
        if executor.waiting():
            found += executor.ended()
        time.sleep(0.001)
    return found


def test_a_device_that_goes_fails_all_under_way_and_then_the_node(far_end: FarEnd) -> None:
    executor, device = far_end()
    executor.begin(1, GRAPH, LANES)
    executor.begin(2, Graph(PREFILL, 1, 64), LANES)
    device.socket.close()
    found = hear(executor, 2)
    assert [ended.launch for ended in found] == [1, 2]
    assert all("closed the connection" in ended.failure for ended in found)
    with pytest.raises(AcceleratorLost, match="closed the connection"):
        executor.waiting()


def test_a_device_that_says_nothing_is_lost_after_its_patience(far_end: FarEnd) -> None:
    executor, _device = far_end(0.2)
    time.sleep(0.3)
    assert not executor.waiting(), "idle is not silent"
    begun = time.monotonic()
    executor.begin(5, GRAPH, LANES)
    (ended,) = hear(executor)
    assert ended.launch == 5
    assert "no answer to launch 5 for 0.2 s" in ended.failure
    assert 0.2 <= time.monotonic() - begun < 2
    with pytest.raises(AcceleratorLost):
        executor.waiting()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"type":"done","launch":9,"ns":5}', "answers launch 9, which is not the next one"),
        (b'{"type":"done","launch":1,"ns":0}', "launch 1 took 0 ns"),
        (b'{"type":"done","launch":1}', "missing required field `ns`"),
        (b"no json", "malformed"),
        (b'{"type":"opened","device":"x"}', "`opened` twice"),
    ],
)
def test_a_device_that_talks_nonsense_is_lost(
    far_end: FarEnd, line: bytes, words: str
) -> None:
    executor, device = far_end()
    executor.begin(1, GRAPH, LANES)
    device.socket.sendall(line + b"\n")
    (ended,) = hear(executor)
    assert words in ended.failure


def test_answers_to_what_was_cancelled_are_not_passed_on(far_end: FarEnd) -> None:
    executor, device = far_end()
    executor.begin(1, GRAPH, LANES)
    executor.begin(2, Graph(PREFILL, 1, 64), LANES)
    executor.cancel()
    assert executor.ended() == [Ended(1, 0, CANCELLED), Ended(2, 0, CANCELLED)]
    messages = [to_device(line) for line in device.receive()]
    assert messages[-1] == Cancel()
    device.send(Done(1, 1000))
    device.send(Failed(2, CANCELLED))
    executor.begin(3, GRAPH, LANES)
    device.send(Done(3, 4321))
    assert hear(executor) == [Ended(3, 4321)]


def test_nobody_at_the_socket_is_one_clear_line(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(AcceleratorLost, match=r"the accelerator at .*/none: nobody answers \(No such file"):
        DeviceExecutor.connect(tmp_path / "none", OPEN, patience_s=0.1)
    assert time.monotonic() - begun < 2


def test_the_shipped_device_measures_more_for_more_work(tmp_path: Path) -> None:
    """Its time is that of work done: sixteen times the tokens take longer, and a wait of its own is in it."""
    path = tmp_path / "device"
    words = [sys.executable, "-m", "emulators.numpy_device", "--socket", str(path), "--hidden", "128", "--layers", "2"]
    with subprocess.Popen(words) as process:
        try:
            executor = DeviceExecutor.connect(path, OPEN, patience_s=10.0)
            assert "measured" in " ".join(executor.opened.facts)
            times: dict[int, list[int]] = {64: [], 1024: []}
            for number in range(10):
                for sequence, found in times.items():
                    launch = 1 + number * 2 + (sequence == 1024)
                    executor.begin(launch, Graph(PREFILL, 1, sequence), LANES)
                    (ended,) = hear(executor)
                    assert (ended.launch, ended.failure) == (launch, "")
                    found.append(ended.duration)
            assert min(times[1024]) > 2 * min(times[64]) > 0
            executor.begin(99, Graph(DECODE, 0, 64), ())
            assert "no graph of kind 'decode', batch 0" in hear(executor)[0].failure
            executor.close()
            with pytest.raises(AcceleratorLost, match="version 1 of the protocol, not 2"):
                DeviceExecutor.connect(path, Open(2, "x", 1, 1), patience_s=5.0)
        finally:
            process.terminate()
    assert process.returncode == 0


def test_bad_options_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--socket", str(tmp_path / "x"), "--hidden", "0"]) == 2
    assert "--hidden is 1 to 8192" in capsys.readouterr().err
