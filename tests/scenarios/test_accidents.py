"""`kill -9` of every kind of process of a run at a random moment: it ends, says why, keeps what it has, leaves nothing.

Known faults A1 and A11 (each kill is beside strangers, and the capture is among what may not be left). One kill of each
kind, or of one of several that die alike; 20 of each with `--soak`. The seed is printed and can be given again by
LOOPLANE_ACCIDENT_SEED.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accidents import KINDS, Kind, LiveRun, Strangers, clean, host_state, leftovers, strangers

pytestmark = [pytest.mark.root]
SEED = int(os.environ.get("LOOPLANE_ACCIDENT_SEED", "20261130"))
SOAK_KILLS = 20
LATEST_S = 1.5
"""After the victim's start; by then tokens flow."""


@pytest.fixture(scope="module")
def beside() -> Iterator[Strangers]:
    with strangers() as found:
        yield found


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[Kind], LiveRun]]:
    runs: list[LiveRun] = []

    def start(kind: Kind) -> LiveRun:
        runs.append(LiveRun(tmp_path, kind))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def marked(kind: Kind) -> object:
    return pytest.param(kind, id=kind.name, marks=[pytest.mark.docker] if kind.nodes == "docker" else [])


def stands_for_others(kind: Kind) -> bool:
    """Whether this is the one that the seed has chosen among those of its word."""
    alike = [other for other in KINDS if other.alike == kind.alike]
    return not kind.alike or random.Random(f"{SEED} {kind.alike}").choice(alike) is kind


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [marked(kind) for kind in KINDS])
def test_kill_9(
    kind: Kind, begin: Callable[[Kind], LiveRun], beside: Strangers, soak: bool, soak_note: Callable[[str], None]
) -> None:
    if not soak and not stands_for_others(kind):
        pytest.skip(f"another kind that dies like a {kind.alike} is killed; --soak kills all")
    moments = random.Random(f"{SEED} {kind.name}")
    took = []
    for _ in range(SOAK_KILLS if soak else 1):
        before = host_state.snapshot()
        run = begin(kind)
        victim = run.victim()
        moment = moments.uniform(0, LATEST_S)
        print(f"{kind.name}: seed {SEED}, {moment:.3f} s after its start")
        time.sleep(moment)
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        told = run.end()
        left = leftovers(before, run.label)
        took.append(time.monotonic() - killed)
        assert left == []
        if not told or kind.alike == "bench":  # the same as the command itself has found
            assert not told or (told["outcome"], told["detail"]) == (run.summary()["outcome"], run.summary()["detail"])
            told = run.summary()
        outcome, code = ("cancelled", -signal.SIGKILL) if kind.name == "conductor" else ("errored", 4)
        assert (told["outcome"], run.process.returncode) == (outcome, code), told
        assert re.search(kind.said, str(told["detail"]), re.DOTALL), told["detail"]
        assert run.events() > 0
        assert not any(run.label in line for line in clean()), "nothing was left for it"
        beside.check()
    soak_note(f"{len(took)} kill -9 of {kind.name}: each ended with its reason, slowest {max(took):.1f} s, leftovers 0")
