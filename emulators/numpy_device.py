"""A device that really computes: matrix work of a small transformer in numpy, measured; the stand-in for a GPU.

    python -m emulators.numpy_device --socket PATH [--hidden 256] [--layers 4] [--slow-by 0]

It speaks `emulators.accelerator_protocol` to one node after the other. Its weights are random and its model is not
the one that `open` names: what it stands for is that time is measured where work is done. A prefill runs its captured
tokens through every layer; a decode step runs one token a sequence and attends to that sequence's context.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one core, as a node has

import numpy as np

from emulators.accelerator_protocol import (
    VERSION,
    BadLine,
    Cancel,
    Compute,
    Done,
    Failed,
    Gone,
    Lines,
    Open,
    Opened,
    to_device,
)
from testbed.serving.executor import CANCELLED

EXIT_BAD_INPUT = 2
KINDS = ("prefill", "decode")
_LARGEST_CONTEXT = 1 << 16


class Transformer:
    """Layers of random weights: attention over a cache, then two matrices."""

    def __init__(self, hidden: int, layers: int) -> None:
        generator = np.random.default_rng(1)
        self.hidden = hidden
        self._weights = [
            (
                generator.standard_normal((hidden, 4 * hidden), dtype=np.float32) / np.float32(hidden**0.5),
                generator.standard_normal((4 * hidden, hidden), dtype=np.float32) / np.float32(2 * hidden**0.5),
            )
            for _ in range(layers)
        ]
        self._cache = generator.standard_normal((_LARGEST_CONTEXT, hidden), dtype=np.float32)

    def run(self, work: Compute) -> float:
        """Computes one graph; a number that depends on all of it, so that nothing can be left out."""
        rows = work.batch * work.sequence if work.kind == "prefill" else work.batch
        state = np.resize(self._cache, (rows, self.hidden)).astype(np.float32)
        for up, down in self._weights:
            if work.kind == "decode":
                state = state + self._attend(state, work.contexts)
            state = state + np.maximum(state @ up, 0) @ down
            state /= np.linalg.norm(state, axis=1, keepdims=True) + np.float32(1e-6)
        return float(state.sum())

    def _attend(self, state: np.ndarray, contexts: Sequence[int]) -> np.ndarray:
        seen = np.zeros_like(state)
        for row, context in enumerate(contexts):
            keys = self._cache[: min(context, _LARGEST_CONTEXT)]
            scores = keys @ state[row]
            weights = np.exp(scores - scores.max(initial=0.0))
            seen[row] = weights @ keys / np.float32(weights.sum() + 1e-6)
        return seen


class Device:
    """Serves one connection: reads ahead, computes in order."""

    def __init__(self, lines: Lines, transformer: Transformer, slow_by_s: float) -> None:
        self._lines = lines
        self._transformer = transformer
        self._slow_by_s = slow_by_s
        self._queue: deque[Compute] = deque()
        self._selector = selectors.DefaultSelector()
        self._selector.register(lines.socket, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the node leaves. Raises `BadLine`."""
        try:
            while True:
                self._read(block=not self._queue)
                if self._queue:
                    self._compute(self._queue.popleft())
        except Gone:
            return
        finally:
            self._selector.close()

    def _read(self, *, block: bool) -> None:
        while self._selector.select(None if block else 0):
            block = False
            for line in self._lines.receive():
                self._take(line)

    def _take(self, line: bytes) -> None:
        match to_device(line):
            case Open(version=version) if version != VERSION:
                self._lines.send(Failed(0, f"this device speaks version {VERSION} of the protocol, not {version}"))
            case Open():
                facts = (f"numpy {np.__version__}", "a small random transformer, not the named model",
                         "times measured by CLOCK_MONOTONIC")  # fmt: skip
                self._lines.send(Opened("numpy on this host's CPU", facts))
            case Compute() as work:
                self._queue.append(work)
            case Cancel():
                for work in self._queue:
                    self._lines.send(Failed(work.launch, CANCELLED))
                self._queue.clear()

    def _compute(self, work: Compute) -> None:
        if work.kind not in KINDS or work.batch < 1 or work.sequence < 1 or len(work.contexts) > work.batch:
            self._lines.send(Failed(work.launch, f"no graph of kind {work.kind!r}, batch {work.batch}, "
                                                 f"sequence {work.sequence}, {len(work.contexts)} lanes"))  # fmt: skip
            return
        begin = time.monotonic_ns()
        self._transformer.run(work)
        if self._slow_by_s:
            time.sleep(self._slow_by_s)
        self._lines.send(Done(work.launch, time.monotonic_ns() - begin))


def listen(path: Path) -> socket.socket:
    """A socket at `path`, in place of one that a dead process has left there. Raises OSError."""
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(1)
    return listener


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser(description="A device that computes with numpy and says how long it took.")
    parser.add_argument("--socket", type=Path, required=True, metavar="PATH", help="unix socket to listen at")
    parser.add_argument("--hidden", type=int, default=256, metavar="N", help="width of the transformer")
    parser.add_argument("--layers", type=int, default=4, metavar="N")
    parser.add_argument("--slow-by", type=float, default=0.0, metavar="S", help="seconds more a graph, for tests")
    options = parser.parse_args(arguments)
    if not (1 <= options.hidden <= 8192 and 1 <= options.layers <= 128 and options.slow_by >= 0):
        print("--hidden is 1 to 8192, --layers 1 to 128, --slow-by not negative", file=sys.stderr)
        return EXIT_BAD_INPUT
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    transformer = Transformer(options.hidden, options.layers)
    try:
        with listen(options.socket) as listener:
            while True:
                connection, _ = listener.accept()
                with connection:
                    try:
                        Device(Lines(connection), transformer, options.slow_by).serve()
                    except BadLine as fault:
                        print(f"the node does not keep the protocol: {fault}", file=sys.stderr)
    finally:
        options.socket.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
