"""`looplane bench [NAME]`: measures what Looplane's figures stand on, on this host, with the spread.

Absolute times belong to one machine at one moment. Where two things can be compared within one run, the figure is
their ratio. Nothing here passes or fails; docs quote these figures with the command that made them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from testbed.command import memory_bench, rules_bench, tokenizer_bench
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import EXPERIMENTS, SOURCE, is_root
from testbed.command.telling import say
from testbed.events.log import log_files
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.reading import read_spec

RDMA_RUNS = 5
"""NICs and namespaces are made anew for each; a run alternates what it compares five times."""


class Benchmark(NamedTuple):
    """One row of the table."""

    summary: str
    unit: str
    measure: Callable[[], list[float]]
    """Figures, one a repeat."""
    root: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Names and form."""
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_names())}; default: all")
    parser.add_argument("--json", action="store_true", help="print {name: {p50, p99, n, unit}}")


def main(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    unknown = [name for name in arguments.names if name not in _names()]
    if unknown:
        raise CommandError(f"bench: {unknown[0]}: unknown; allowed: {', '.join(_names())}", ExitCode.BAD_INPUT)
    results: dict[str, dict[str, Any]] = {}
    for name in [row for asked in arguments.names or BENCHMARKS for row in GROUPS.get(asked, (asked,))]:
        row = BENCHMARKS[name]
        if row.root and not is_root():
            if arguments.names:
                raise CommandError(f"bench: {name} needs root: it makes network namespaces", ExitCode.HOST_CANNOT)
            say(f"{name}: left out, needs root")
            continue
        say(f"{name}: {row.summary}")
        results[name] = {**spread(row.measure()), "unit": row.unit}
    if arguments.json:
        print(json.dumps(results, indent=1))
        return ExitCode.PASSED
    print(f"{'':32}{'min':>12}{'p50':>12}{'p99':>12}{'max':>12}{'n':>6}  unit")
    for name, figures in results.items():
        cells = "".join(f"{figures[key]:>12,.4g}" for key in ("min", "p50", "p99", "max"))
        print(f"{name:32}{cells}{figures['n']:>6}  {figures['unit']}")
    return ExitCode.PASSED


def _names() -> list[str]:
    return [*BENCHMARKS, *GROUPS]


def spread(figures: Sequence[float]) -> dict[str, Any]:
    """Median, p99 (linear), least and greatest, and how many repeats they rest on."""
    p50, p99 = np.percentile(figures, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "min": min(figures), "max": max(figures), "n": len(figures)}


def _words(operation: str) -> list[float]:
    return [value / 1000 for value in _json_of("emulators.word_bench", operation)]


def _lost_increments() -> list[float]:
    lost: list[float] = _json_of("emulators.word_bench", "lost_increments", "--repeats", "3")
    return lost


@cache
def _rdma_runs(count: int, *arguments: str) -> list[dict[str, Any]]:
    """Runs of `emulators.rnic_bench`, shared by every row that is of them."""
    return [_json_of("emulators.rnic_bench", "--json", *arguments) for _ in range(count)]


def _rdma_ratios(what: str, *arguments: str, runs: int = RDMA_RUNS) -> list[float]:
    """The ratios in those runs, one for each alternation of the two things."""
    rows = [row for run in _rdma_runs(runs, *arguments) for row in run["ratios"] if row["what"].startswith(what)]
    return [float(ratio) for row in rows for ratio in row["ratios"]]


def _json_of(module: str, *arguments: str) -> Any:
    words = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"{module}: {(done.stderr or done.stdout).strip().splitlines()[-1]}", ExitCode.ERRORED)
    return json.loads(done.stdout)


def _tokenizer_rows() -> dict[str, Benchmark]:
    rows = {
        "tokenizer_wrong_ids": Benchmark(
            f"texts of {tokenizer_bench.CORPUS:,} drawn ones whose ids are not Hugging Face's", "texts",
            tokenizer_bench.wrong_ids,
        )
    }  # fmt: skip
    kinds = {"seen": tokenizer_bench.seen, "unseen": tokenizer_bench.unseen}
    words = {"seen": "excerpts of a story", "unseen": "words of drawn letters"}
    for kind, measure in kinds.items():
        for tokens in tokenizer_bench.LENGTHS:
            name, texts = f"tokenizer_{kind}_{tokens}", f"{tokens} tokens, {words[kind]}"
            measured = partial(measure, tokens)
            rows |= {
                name: Benchmark(f"fastokens, {texts}", "us", partial(_figure, measured, "ours_us")),
                f"{name}_hf": Benchmark(f"tokenizers, {texts}", "us", partial(_figure, measured, "theirs_us")),
                f"{name}_ratio": Benchmark(
                    f"tokenizers ÷ fastokens, {texts}", "ratio", partial(_figure, measured, "ratios")
                ),
            }
    return rows


def _figure(measured: Callable[[], tokenizer_bench.Measured], of: str) -> list[float]:
    figures: list[float] = getattr(measured(), of)
    return figures


def _live_rows() -> dict[str, Benchmark]:
    """One minute of 5,000 events a second for ten viewers, one of them Chromium; a row for each thing it tells."""
    measured = cache(partial(_json_of, "webui.runs.live_bench"))
    words = {
        "latency": ("from an event to the frame that shows it", "ms"),
        "frames": ("frames in each second of the run page", "frames/s"),
        "cpu_percent": ("the web process in each second", "% of a core"),
        "wrong": ("events lost or doubled, for each viewer", "events"),
    }
    return {
        f"live_{name}": Benchmark(f"5,000 events/s to ten viewers: {what}", unit, partial(_of, measured, name))
        for name, (what, unit) in words.items()
    }


def _of(measured: Callable[[], Any], name: str) -> list[float]:
    return list(map(float, measured()[name]))


def _simulated_events() -> list[float]:
    spec = read_spec(EXPERIMENTS / "blink" / "demo.toml")
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(5):
            prepared = prepare(spec, folder, clock="simulated")
            start = time.perf_counter()
            simulate(prepared.plans[0], prepared.folder)
            elapsed = time.perf_counter() - start
            lines = sum(path.read_bytes().count(b"\n") for path in log_files(prepared.folder.events))
            rates.append(lines / elapsed)
    return rates


BENCHMARKS: dict[str, Benchmark] = {
    "ring_scan_4096": Benchmark("one scan of 4,096 slot words for pending ones", "us", lambda: _words("ring_scan")),
    "slot_cas": Benchmark("compare-and-swap of a slot word by the CPU", "us", lambda: _words("slot_cas")),
    "slot_cas_lost_increments": Benchmark(
        "increments lost of two processes × 200,000 by compare-and-swap", "increments", _lost_increments
    ),
    "rdma_read_64B_vs_udp": Benchmark(
        "64-byte READ round trip ÷ UDP ping-pong, medians, both pinned alike; software polls its completion queue, "
        "as RDMA software does; UDP blocks", "ratio",
        lambda: _rdma_ratios("READ of 64 B over UDP"), root=True,
    ),
    "rdma_read_64B_sleeping_vs_udp": Benchmark(
        "the same, software asleep until it is notified", "ratio",
        lambda: _rdma_ratios("READ of 64 B, sleeping over UDP"), root=True,
    ),
    "rdma_read_64B_busy_vs_idle_p99": Benchmark(
        "p99 of the 64-byte READ, 1 ms apart, with a spinning process on the responder's core ÷ without", "ratio",
        lambda: _rdma_ratios("READ of 64 B, busy", "--neighbour", runs=2), root=True,
    ),
    "rdma_write_packets_vs_sendto": Benchmark(
        "packets a second of 1 MiB WRITEs ÷ bare sendto of equal packets", "ratio",
        lambda: _rdma_ratios("WRITE packets over sendto"), root=True,
    ),
    "lane_shares_vs_arbiter": Benchmark(
        "kernel's shares of drawn lane tables against the exact arbiter's, the worst lane", "points",
        lambda: list(_json_of("topologies.lane_bench", "shares")), root=True,
    ),
    "lane_lone_high_wait": Benchmark(
        "a lone high frame's wait at a port that a low lane saturates, less the idle median", "low frames",
        lambda: list(_json_of("topologies.lane_bench", "wait")), root=True,
    ),
    "lane_check": Benchmark(
        "comparing one port's whole queue tree with its setting", "us",
        lambda: list(_json_of("topologies.lane_bench", "check")), root=True,
    ),
    "storage_read_mb_s": Benchmark(
        "chunks of 16 KiB read from a storage node's image, past every page cache, one after another", "MB/s",
        lambda: list(map(float, _json_of("topologies.storage_bench", "16384"))), root=True,
    ),
    **{
        f"memory_mib_{kind}": Benchmark(
            f"memory of {found.words} (PSS)", "MiB", partial(memory_bench.memory_of, kind), root=True
        )
        for kind, found in memory_bench.KINDS.items()
    },
    **_tokenizer_rows(),
    **_live_rows(),
    "simulated_events_per_s": Benchmark(
        "logged events of the demonstration a second", "events/s", _simulated_events
    ),
    "placements_per_s": Benchmark(
        "turns that DualPath's rules place on 1,152 engines, compiled", "turns/s",
        partial(rules_bench.placements_per_s, True, 1_000_000),
    ),
    "placements_per_s_plain": Benchmark(
        "the same functions as Python", "turns/s", partial(rules_bench.placements_per_s, False, 2_000),
    ),
}  # fmt: skip
"""What can be measured."""
GROUPS = {
    group: tuple(name for name in BENCHMARKS if name.startswith(f"{group}_"))
    for group in ("tokenizer", "live", "memory")
}
"""Rows that are asked for together."""
