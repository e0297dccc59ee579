"""A neighbour's software: work of another tenant of the host, done without end, and how much of it is done.

`python -m emulators.interference --kind pbzip2 --threads 4 --working-set-mib 32 --report FILE --limit-s 600`, started
by the bench in a container of its own on the host's CPU set (Blink's sections 3 and 6: pbzip2 and a parallel compile;
section 3's mechanism: madvise and munmap of neighbours). It knows no server and no run. Each 0.2 s it says in FILE what
it has done; it ends on SIGTERM, after its limit, and when FILE's folder is taken away.
"""

from __future__ import annotations

import argparse
import bz2
import ctypes
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec

REPORT_S = 0.2
MIB = 1 << 20
PAGE = mmap.PAGESIZE
SEED = 2604
"""Of everything that is generated: a neighbour does the same work in every run."""
_CHUNK = 128 << 10
_LINES = 64
"""Bytes between two reads of one page: a cache line."""
_PR_SET_PDEATHSIG = 1
_FUNCTIONS = 3
"""In each source file that is compiled: about 0.1 s of gcc -O2, 1 ms of tcc."""
_SOURCES = 64
_libc = ctypes.CDLL(None)


class Report(msgspec.Struct, frozen=True):
    """What stands in the report file."""

    program: str
    """What does the work: pbzip2, Python's bz2, gcc, tcc, …"""
    unit: str
    done: float = 0.0
    """Units since the start."""


class Work(NamedTuple):
    """Work without end."""

    program: str
    unit: str
    pieces: Callable[[], Iterator[float]]
    """Does it; yields units as they are done, at least ten times a second where something is."""


class CannotWork(Exception):
    """A program that the work needs is not installed."""


def pbzip2(threads: int, working_set_mib: int) -> Work:
    """Compresses a generated text over and over, with Python's bz2 where there is no pbzip2."""
    program = shutil.which("pbzip2")
    if program is None:
        return Work("Python's bz2", "MB", lambda: forked(threads, compressions(text(working_set_mib * MIB))))

    def pieces() -> Iterator[float]:
        data = memoryview(text(working_set_mib * MIB))
        # Its queue holds what the threads work on and as much again, not the default's 100 MB that hide the rate.
        command = [program, "-c", "-9", f"-p{threads}", f"-m{max(8, 4 * threads)}"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent
        ) as process:
            assert process.stdin is not None
            try:
                while True:
                    for place in range(0, len(data), _CHUNK):
                        process.stdin.write(data[place : place + _CHUNK])
                        yield len(data[place : place + _CHUNK]) / 1e6
            finally:
                process.kill()
                with suppress(BrokenPipeError):
                    process.stdin.close()

    return Work("pbzip2", "MB", pieces)


def compiling(threads: int, _working_set_mib: int) -> Work:
    """Builds a generated C program over and over by make with so many jobs; how much memory it takes is the compiler's
    affair. Raises CannotWork.
    """
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc", "tcc"))), None)
    if compiler is None or shutil.which("make") is None:
        raise CannotWork("a parallel compile takes make and one of gcc, cc, tcc (apt-get install make tcc)")
    compiler = str(Path(compiler).resolve())

    def pieces() -> Iterator[float]:
        with tempfile.TemporaryDirectory(prefix="looplane-compile-") as made:
            yield from builds(Path(made))

    def builds(folder: Path) -> Iterator[float]:
        write_sources(folder)
        command = ["make", "-s", "-j", str(threads), f"CC={compiler}", "again"]
        while True:
            with subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                process_group=0,  # not a session of its own, which would be one more for the kernel to be fair to
                preexec_fn=die_with_parent,
            ) as process:
                assert process.stdout is not None
                try:
                    for _ in process.stdout:
                        yield 1.0
                except BaseException:  # the end of the run: what make has started goes with it
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    raise
            if process.returncode != 0:
                raise CannotWork(f"make with {compiler} ended with {process.returncode}")

    return Work(Path(compiler).name, "files", pieces)


def memory(threads: int, working_set_mib: int) -> Work:
    """Maps memory, walks it line by line, gives its pages back, walks it again and unmaps it."""
    return Work("mmap, madvise, munmap", "mappings", lambda: forked(threads, churn(working_set_mib * MIB)))


KINDS: dict[str, Callable[[int, int], Work]] = {"pbzip2": pbzip2, "compile": compiling, "memory": memory}
"""By the `kind` of `testbed.experiment.spec.NeighbourSpec`."""


def text(size: int) -> bytes:
    """`size` bytes of lines of made-up words, the same every time; pbzip2 makes about a fifth of it."""
    rng = random.Random(SEED)
    words = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9))) for _ in range(4096)]
    lines = [" ".join(rng.choices(words, k=rng.randint(6, 18))) for _ in range(8192)]
    found = bytearray()
    while len(found) < size:
        found += "\n".join(rng.choices(lines, k=8192)).encode()
    return bytes(found[:size])


def compressions(data: bytes) -> Callable[[], float]:
    """Compresses the next block of `data`, as large as one of pbzip2's; returns megabytes."""
    place = 0
    block = 900_000

    def piece() -> float:
        nonlocal place
        part = data[place : place + block]
        place = (place + block) % max(1, len(data) - block)
        bz2.compress(part)
        return len(part) / 1e6

    return piece


def churn(size: int) -> Callable[[], float]:
    """Makes, uses and unmakes one mapping of `size` bytes; returns 1."""
    ones = b"\1" * (size // PAGE)

    def piece() -> float:
        area = mmap.mmap(-1, size)
        for _ in range(2):
            area[::PAGE] = ones  # a page fault each
            for line in range(0, PAGE, PAGE // 8 + _LINES):
                area[line::PAGE]
            area.madvise(mmap.MADV_DONTNEED)
        area.close()
        return 1.0

    return piece


def write_sources(folder: Path) -> None:
    """A C program of many files without a header, and the makefile that compiles it."""
    rng = random.Random(SEED)
    for number in range(_SOURCES):
        lines = []
        for function in range(_FUNCTIONS):
            lines.append(f"long f{number}_{function}(long a, long b, long *c) {{")
            for _ in range(12):
                left, right, index = rng.choice("ab"), rng.choice("ab"), rng.randrange(8)
                lines.append(f"  for (long i = {rng.randrange(9)}; i < a; i++) c[{index}] += {left} * i + {right};")
                lines.append(f"  if (c[{index}] > {rng.randrange(999)}) a = b * {rng.randrange(1, 99)} ^ c[{index}];")
            lines.append("  return a + b; }")
        (folder / f"source{number}.c").write_text("\n".join(lines) + "\n")
    objects = " ".join(f"source{number}.o" for number in range(_SOURCES))
    rule = "%.o: %.c FORCE\n\t@$(CC) -O2 -c $< -o $@ && echo $@\n"
    (folder / "Makefile").write_text(f"again: {objects}\n{rule}FORCE:\n")


def forked(count: int, piece: Callable[[], float]) -> Iterator[float]:
    """`piece` over and over in so many processes (threads of Python would wait for each other)."""
    counts = memoryview(mmap.mmap(-1, 8 * count)).cast("d")
    children = [pid for number in range(count) if (pid := _fork(counts, number, piece))]
    last = 0.0
    try:
        while True:
            time.sleep(REPORT_S / 2)
            total = sum(counts)
            yield total - last
            last = total
            if any(os.waitpid(pid, os.WNOHANG)[0] for pid in children):
                raise CannotWork("one of its processes has ended")
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _fork(counts: memoryview[float], number: int, piece: Callable[[], float]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent()
            while os.getppid() == parent:
                counts[number] += piece()
        finally:
            os._exit(1)
    return pid


def die_with_parent() -> None:
    """Asks the kernel to kill this process when the one that started it ends (prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def work(work: Work, report: Path, limit_s: float) -> None:
    """Works and reports until the limit, or until the report cannot be written any more."""
    end = time.monotonic() + limit_s
    done, due = 0.0, 0.0
    for piece in work.pieces():
        done += piece
        now = time.monotonic()
        if now < due:
            continue
        due = now + REPORT_S
        draft = report.with_suffix(".new")
        try:
            draft.write_bytes(msgspec.json.encode(Report(work.program, work.unit, done)))
            draft.rename(report)
        except FileNotFoundError:  # the run is gone, and its folder with it
            return
        if now > end:
            return


def main(arguments: Sequence[str] | None = None) -> int:
    """A whole life. Returns the exit code: 0, or 2 where a program is missing or ends, or nothing can be written."""
    parser = argparse.ArgumentParser(description="One neighbour's software; started by the bench.")
    parser.add_argument("--kind", choices=list(KINDS), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--working-set-mib", type=int, required=True)
    parser.add_argument("--report", type=Path, required=True, metavar="FILE")
    parser.add_argument("--limit-s", type=float, required=True)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    try:
        work(KINDS[options.kind](options.threads, options.working_set_mib), options.report, options.limit_s)
    except (CannotWork, OSError) as fault:
        print(f"neighbour: {fault}", file=sys.stderr)
        return 2
    return 0


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    raise SystemExit(main())
