"""The modelled accelerator and one that is a process of its own keep the same contract."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulators.accelerator_protocol import VERSION, Open
from emulators.device_accelerator import DeviceExecutor
from testbed.blink.device import EmulatedDevice
from testbed.network.memory_region import PlainMemory
from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Engine
from testbed.serving.executor import Executor
from testbed.serving.text_model import TextModel
from testbed.serving.tokens import ByteVocabulary
from tests.conformance.accelerator_contract import AcceleratorContract, told
from tests.testbed.blink.world import TEXT, small

BOUND_S = 20.0
SETTLE_S = 0.3


class Bench:
    """What both variants have."""

    def __init__(self, executor: Executor | None = None) -> None:
        self.parameters = small()
        self.memory = PlainMemory(self.parameters.layout().size)
        engine = Engine(CostModel(read_profile("llama-3-8b.toml")), TextModel(TEXT, ByteVocabulary()))
        self.device = EmulatedDevice(self.parameters, memory=self.memory, engine=engine, executor=executor)


class ModelledBench(Bench):
    """Time jumps from deadline to deadline."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0

    def now(self) -> int:
        return self._now

    def run_until(self, done: Callable[[list[Any]], bool]) -> list[Any]:
        found: list[Any] = []
        while not done(found):
            moment = self.device.deadline()
            assert moment is not None, f"nothing will come any more, so far {found}"
            self._now = max(self._now, moment)
            found += told(self.device.wake(self._now))
        return found

    def settle(self) -> list[Any]:
        found: list[Any] = []
        while (moment := self.device.deadline()) is not None:
            self._now = max(self._now, moment)
            found += told(self.device.wake(self._now))
        return found


class ProcessBench(Bench):
    """Time passes by itself."""

    def __init__(self, executor: DeviceExecutor) -> None:
        super().__init__(executor)
        self._fd = executor.fd
        self._begun = time.monotonic_ns()

    def now(self) -> int:
        return time.monotonic_ns() - self._begun

    def run_until(self, done: Callable[[list[Any]], bool]) -> list[Any]:
        found: list[Any] = []
        limit = time.monotonic() + BOUND_S
        while not done(found):
            assert time.monotonic() < limit, f"not done after {BOUND_S} s, so far {found}"
            found += self._turn()
        return found

    def settle(self) -> list[Any]:
        found: list[Any] = []
        limit = time.monotonic() + SETTLE_S
        while time.monotonic() < limit:
            found += self._turn()
        return found

    def _turn(self) -> list[Any]:
        moment = self.device.deadline()
        if moment is not None and moment <= self.now():
            return told(self.device.wake(self.now()))
        wait_s = 0.02 if moment is None else min(0.02, (moment - self.now()) / 1e9)
        select.select([self._fd], (), (), max(0.0, wait_s))
        return []


class TestModelledAccelerator(AcceleratorContract):
    """Time as the cost model has it."""

    @pytest.fixture
    def bench(self) -> ModelledBench:
        return ModelledBench()


@pytest.fixture(scope="module")
def numpy_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running device process."""
    path = tmp_path_factory.mktemp("device") / "socket"
    words = [sys.executable, "-m", "emulators.numpy_device", "--socket", str(path), "--hidden", "64", "--layers", "2"]
    process = subprocess.Popen(words)
    yield path
    process.terminate()
    assert process.wait(10) == 0
    assert not path.exists(), "it takes its socket away"


class TestDeviceProcess(AcceleratorContract):
    """Graphs computed by a second process, time as measured there."""

    @pytest.fixture
    def bench(self, numpy_device: Path) -> Iterator[ProcessBench]:
        executor = DeviceExecutor.connect(numpy_device, Open(VERSION, "llama-3-8b", 4, 128), patience_s=10.0)
        yield ProcessBench(executor)
        executor.close()
