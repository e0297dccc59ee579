"""One experiment on an emulated network and as its simulated twin: what issue Ground asks, held on this host.

The same spec, the same seeds, faithful runs only. A host that was too busy gives no faithful run; then it is tried
again, and the last verdict's reasons are the failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.command.places import SOURCE

pytestmark = pytest.mark.root
TRIES = 3
SHORT = ("workload.requests=16",)
"""About 12 s of a faithful run; too few values for a p99."""


BLINK, DUALPATH = "fixtures/experiments/blink/parity.toml", "fixtures/experiments/dualpath/small.toml"


def parity(folder: Path, repeats: int, *overrides: str, file: str = BLINK) -> tuple[int, dict[str, Any]]:
    """The command's exit code and its one comparison."""
    words = [sys.executable, "-m", "testbed.command", "parity", "--json", file]
    words += ["--repeats", str(repeats), "--out", str(folder)]
    words += [part for override in overrides for part in ("--set", override)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(words, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout, done.stderr[-3000:]
    ((comparison,),) = [row["comparisons"] for row in json.loads(done.stdout)]
    return done.returncode, comparison


def faithful(folder: Path, repeats: int, *overrides: str, file: str = BLINK) -> tuple[int, dict[str, Any]]:
    """The same from the first try in which every repeat is faithful. Fails with the last one's reasons."""
    comparison: dict[str, Any] = {}
    for _ in range(TRIES):
        code, comparison = parity(folder, repeats, *overrides, file=file)
        if all(run["pooled"] for run in comparison["runs"]):
            return code, comparison
    pytest.fail(f"none of {TRIES} tries is faithful: {[run for run in comparison['runs'] if not run['pooled']]}")


def rows(comparison: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in comparison["rows"]}


def test_both_clocks_give_the_same_tokens_and_nearly_the_same_latencies(
    tmp_path: Path, soak: bool, soak_note: Callable[[str], None]
) -> None:
    """In soak: 300 requests pooled, every bound of the issue. Else 16, whose medians are held where they are tight.

    The wait for a claim spreads over a whole step, so its median over 16 says nothing; it is judged in soak.
    """
    code, found = faithful(tmp_path, 5) if soak else faithful(tmp_path, 1, *SHORT)
    table = rows(found)
    assert found["same_tokens"] is True
    assert found["dilation"] == 6
    assert found["requests"] == (300 if soak else 16)
    for metric in ("TPOT p50", "ITL p50", "publish to client p50", "tokens a second"):
        assert table[metric]["held"] is True, table[metric]
    apart = {name: f"{row['difference_percent']:+.1f} %" for name, row in table.items() if row["difference_percent"]}
    soak_note(f"parity over {found['requests']} requests: {apart}")
    if soak:
        assert code == 0, found
    else:
        assert table["TTFT p99"]["held"] is None


def test_dual_paths_take_the_same_time_and_carry_the_same_bytes(
    tmp_path: Path, soak: bool, soak_note: Callable[[str], None]
) -> None:
    """Issue DualPath: JCT and bytes of each path within 10 % under both clocks. In soak five repeats, else one."""
    _, found = faithful(tmp_path, 5 if soak else 1, file=DUALPATH)
    table = rows(found)
    apart = {name: row["difference_percent"] for name, row in table.items()}
    soak_note(f"DualPath's parity over {found['requests']} requests: {apart}")
    for metric in ("JCT, s", "read by prefill side, GB", "read by decode side, GB"):
        assert abs(apart[metric]) <= 10, table[metric]
    assert found["same_tokens"] is True


@pytest.mark.soak
def test_half_the_rate_of_a_link_moves_both_clocks_alike(
    tmp_path: Path, soak: bool, soak_note: Callable[[str], None]
) -> None:
    """64 KiB of metadata a poll are what the compute link's rate is felt in: publish to client.

    At 50 and 25 Gbit/s with byte_scale 60 they take 0.6 and 1.3 ms of true time, well beyond a repeat's spread.

    Why 15 %: medians of single repeats were up to 1.4 % apart at one rate, so noise moves the ratio of two by about
    2 %. The emulation's own factor was 1.24: a twin that the rate does not move would be 24 % off. The bound is
    between the two and below what the 25 % that each figure may be off would allow. It does not tell small faults of
    the model: a twin that paid a packet's second port twice was 11 % off here and passed.
    """
    if not soak:
        pytest.skip("three minutes of emulation: only in --soak; the twin alone is in test_twin.py")
    _, whole = faithful(tmp_path, 2, "network.compute.rate_gbit_s=50")
    _, half = faithful(tmp_path, 2, "network.compute.rate_gbit_s=25")
    metric = "publish to client p50"
    before, after = rows(whole)[metric], rows(half)[metric]
    simulated = after["simulated"] / before["simulated"]
    emulated = after["emulated"] / before["emulated"]
    soak_note(f"half the rate: publish to client × {simulated:.2f} simulated, × {emulated:.2f} emulated")
    assert simulated > 1.2
    assert emulated > 1.2
    assert emulated / simulated == pytest.approx(1, abs=0.15)
