"""The GPU's scheduler is killed and stopped at random moments: no request hangs, no token is lost or doubled."""

import random

import pytest
import whole_run

from testbed.events.log import check_log, log_files
from testbed.events.ordering import merge
from testbed.metrics.fidelity import FidelityFold
from testbed.metrics.fold import Folding
from testbed.metrics.recovery import RecoveryFold
from testbed.units import SECOND

pytestmark = pytest.mark.root
DILATION = 4
BUSY_S = (0.3, 2.9)
"""True seconds in which requests are under way."""
APART_S = 0.45
LOAD = ("expect={}", "workload.requests=36", "workload.arrivals.rate_per_s=14", "workload.lengths.output_high=96")
SEED = 20260412


def moments(chance: random.Random, kills: int) -> list[float]:
    """Moments of so many deaths, far enough apart for each to be noticed."""
    low, high = BUSY_S
    free = sorted(chance.uniform(0, high - low - (kills - 1) * APART_S) for _ in range(kills))
    return [round(low + moment + place * APART_S, 3) for place, moment in enumerate(free)]


def said(folder):
    """The text of each request's answer, by name."""
    names = {event.request: event.name for _, event in whole_run.events_of(folder, "request.arrived")}
    texts = dict.fromkeys(names.values(), "")
    for _, event in whole_run.events_of(folder, "tokens.detokenised"):
        texts[names[event.request]] += event.text
    return texts


def assert_every_stream_is_whole(folder, undisturbed):
    finished = {event.name: event.tokens for _, event in whole_run.events_of(folder, "request.finished")}
    assert len(finished) == 36
    assert not whole_run.events_of(folder, "request.failed")
    received = dict.fromkeys(finished, 0)
    for _, event in whole_run.events_of(folder, "token.received"):
        assert event.index == received[event.name], "a token is missing or came twice"
        received[event.name] += event.count
    assert received == finished
    read: dict[int, int] = {}
    for _, event in whole_run.events_of(folder, "tokens.read"):
        assert event.first == read.get(event.request, 0)
        read[event.request] = event.first + event.count
    assert said(folder) == undisturbed, "what is drawn again is the same"


def test_kill_9_at_random_moments(prepare_run, start_bench, simulate_run, soak, soak_note):
    """Three deaths and a hang in one run; 20 and five in five runs of a soak, at moments that are new each time."""
    undisturbed = said(simulate_run("recovery.toml", *LOAD, "faults=[]"))
    worst = 0
    for _ in range(5 if soak else 1):
        seed = random.SystemRandom().randrange(1 << 32) if soak else SEED
        print(f"seed {seed}")
        chance = random.Random(seed)
        kinds = ["hang-scheduler", *["kill-scheduler"] * (4 if soak else 3)]
        chance.shuffle(kinds)
        struck = list(zip(moments(chance, len(kinds)), kinds, strict=True))
        faults = ", ".join(f'{{node="gpu0", at_s={moment}, kind="{kind}"}}' for moment, kind in struck)
        folder = prepare_run("recovery.toml", *LOAD, f"faults=[{faults}]")
        bench = start_bench(folder)
        assert bench.end() == 0, bench.said()
        for path in log_files(folder / "events"):
            check_log(path)
        assert_every_stream_is_whole(folder, undisturbed)
        records = list(merge(folder / "events"))
        state = Folding({"recovery": RecoveryFold()}).take_all(records).result("recovery")
        assert len(state.outages) == state.restarts == len(struck)
        assert (state.gave_up, state.interrupted) == (0, 0)
        assert [outage.kind for outage in state.outages] == kinds
        for outage in state.outages:
            back = outage.back - outage.began
            assert back <= 1 * SECOND, "of true time"
            assert back * DILATION <= 5 * SECOND, "of wall time"
            worst = max(worst, back)
        verdict = Folding({"fidelity": FidelityFold()}).take_all(records).result("fidelity")
        assert not any("log" in reason or "stopped" in reason for reason in verdict.reasons), verdict.reasons
    struck_so_often = "20 kills and 5 hangs" if soak else "3 kills and 1 hang"
    soak_note(f"{struck_so_often} of a GPU's scheduler: service back after {worst / 1e6:.0f} ms at the worst")
