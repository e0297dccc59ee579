from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.events.client_events import RequestFinished, RequestSent, TokenReceived
from testbed.events.log import Record, check_log, log_files
from testbed.events.ordering import merge
from testbed.events.run_events import HostProvisioned, LineLogged, NodeReady, NodeStopped, RunFinished, RunStarted
from testbed.events.schema import (
    BLINK_STEPS,
    BatchChanged,
    GraphLaunched,
    GraphSelected,
    RequestArrived,
    RequestServed,
    SlotMoved,
)
from testbed.experiment.launch import Prepared, prepare
from testbed.experiment.reading import read_spec
from testbed.experiment.simulation import Progress, SimulationEnd, simulate
from testbed.experiment.summary import fold_trial, summarise
from testbed.machine import Event
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary

TOP = Path(__file__).resolve().parents[3]
SMALL = TOP / "fixtures" / "experiments" / "blink" / "small.toml"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return deepseek_vocabulary()


def prepared(folder: Path, *overrides: str, run: str = "20260101-000000-0a1b2c") -> Prepared:
    return prepare(read_spec(SMALL, overrides), folder, clock="simulated", run=run)


def ran(folder: Path, vocabulary: Vocabulary, *overrides: str) -> tuple[SimulationEnd, list[Record]]:
    run = prepared(folder, *overrides)
    end = simulate(run.plans[0], run.trials[0], vocabulary=vocabulary)
    return end, list(merge(run.trials[0].events))


def of(records: list[Record], kind: type[Event]) -> list[Record]:
    return [record for record in records if isinstance(record.event, kind)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """The event folder of one run."""
    run = prepared(tmp_path_factory.mktemp("small"))
    end = simulate(run.plans[0], run.trials[0], vocabulary=vocabulary)
    assert (end.outcome, end.detail) == ("passed", "")
    return run.trials[0].events


@pytest.fixture(scope="module")
def small(whole: Path) -> list[Record]:
    return list(merge(whole))


def test_every_request_is_sent_and_finished_with_all_its_tokens(small: list[Record]) -> None:
    sent = {r.event.name: r.event for r in small if isinstance(r.event, RequestSent)}
    finished = {r.event.name: r.event for r in small if isinstance(r.event, RequestFinished)}
    received: Counter[str] = Counter()
    for record in small:
        if isinstance(record.event, TokenReceived):
            assert record.event.index == received[record.event.name]
            received[record.event.name] += record.event.count
    assert len(sent) == 8
    assert sent.keys() == finished.keys()
    for name, event in finished.items():
        # ignore_eos: every answer is as long as it may be.
        assert (event.tokens, event.reason) == (sent[name].max_tokens, "length")
        assert received[name] == event.tokens
    assert all(event.lag == 0 for event in sent.values())


def test_each_request_makes_the_thirteen_steps_in_order(small: list[Record]) -> None:
    """Blink's figure: each numbered circle is one kind of event, and no step comes before the one it needs."""
    launches = {r.event.launch: r.event.requests for r in small if isinstance(r.event, GraphSelected)}
    steps = {kind: step for step, kind in BLINK_STEPS.items()}
    first: dict[int, dict[int, int]] = defaultdict(dict)
    for record in small:
        event = record.event
        step = steps.get(type(event))
        if step is None:
            continue
        if isinstance(event, GraphLaunched):
            requests: tuple[int, ...] = launches[event.launch]
        else:
            requests = getattr(event, "requests", None) or (event.request,)  # type: ignore[attr-defined]
        for request in requests:
            first[request].setdefault(step, record.t)
    assert len(first) == 8
    for request, moments in first.items():
        assert sorted(moments) == list(range(1, 14)), request
        ordered = [moments[step] for step in range(1, 14)]
        assert ordered == sorted(ordered), (request, moments)


def test_the_log_is_whole_and_says_how_it_began_and_ended(small: list[Record]) -> None:
    start = of(small, RunStarted)[0].event
    assert isinstance(start, RunStarted)
    assert (start.clock, start.dilation, start.byte_scale, start.requests) == ("simulated", 1.0, 1, 8)
    assert [r.event for r in of(small, RunFinished)] == [RunFinished("passed", "")]
    assert {r.node for r in of(small, NodeReady)} == {"client0", "dpu0", "gpu0", "host0"}
    assert start.nodes == ("client0", "dpu0", "gpu0", "host0")
    assert {r.node for r in of(small, NodeStopped)} == set(start.nodes)


def removed(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut_in_its_last_line(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 3)


@pytest.mark.parametrize("node", ["client0", "dpu0", "gpu0", "host0"])
@pytest.mark.parametrize(
    ("damage", "verdict", "reason"),
    [
        (removed, "invalid", "incomplete log: no events of {node}"),
        (emptied, "invalid", "incomplete log: no events of {node}"),
        (cut_in_its_last_line, "degraded", "incomplete log: no node.stopped of {node}"),
    ],
)
def test_a_log_that_lost_a_nodes_file_or_its_end_is_not_faithful(
    whole: Path, tmp_path: Path, node: str, damage: Callable[[Path], None], verdict: str, reason: str
) -> None:
    shutil.copytree(whole, tmp_path / "events")
    assert fold_trial("", "blink", "", merge(tmp_path / "events")).fidelity.verdict == "faithful"
    damage(tmp_path / "events" / f"{node}.jsonl")
    result = fold_trial("", "blink", "", merge(tmp_path / "events"))
    assert (result.fidelity.verdict, result.fidelity.reasons) == (verdict, (reason.format(node=node),))
    assert summarise("run", "", [result], {}).outcome == ("errored" if verdict == "invalid" else "passed")


def test_the_host_provisions_first_and_then_leaves_the_path(small: list[Record]) -> None:
    (provisioned,) = of(small, HostProvisioned)
    assert (provisioned.node, provisioned.t) == ("host0", 0)
    assert provisioned.t <= of(small, RequestArrived)[0].t
    kinds = {type(record.event).__name__ for record in small if record.node == "host0"}
    assert kinds == {"HostProvisioned", "NodeReady", "NodeHeartbeat", "NodeStopped"}


def test_all_that_was_taken_is_given_back(small: list[Record]) -> None:
    """Conservation: every slot is empty again and every KV block is in the pool."""
    last: dict[int, str] = {}
    for record in small:
        if isinstance(record.event, SlotMoved):
            last[record.event.slot] = record.event.after
    assert last
    served = of(small, RequestServed)
    assert len(served) == 8
    final = of(small, BatchChanged)[-1].event
    assert isinstance(final, BatchChanged)
    assert (final.running, final.paused, final.pending) == (0, 0, 0)
    assert final.kv_blocks_free == final.kv_blocks_total


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log_files(folder)}


@pytest.mark.parametrize("wire", ["flow", "packet"])
def test_the_same_plan_twice_is_the_same_byte_for_byte(tmp_path: Path, vocabulary: Vocabulary, wire: str) -> None:
    """Known fault 37; the run's id and the time of day must not show."""
    told = []
    for run in ("20260101-000000-0a1b2c", "20270101-000000-ffffff"):
        there = prepared(tmp_path, f"network.wire={wire}", run=run)
        assert simulate(there.plans[0], there.trials[0], vocabulary=vocabulary).outcome == "passed"
        told.append(contents(there.trials[0].events))
    assert told[0] == told[1]
    assert set(told[0]) == {"bench.jsonl", "client0.jsonl", "dpu0.jsonl", "gpu0.jsonl", "host0.jsonl"}


def test_another_seed_is_another_run(tmp_path: Path, vocabulary: Vocabulary) -> None:
    first = ran(tmp_path / "a", vocabulary)[1]
    second = ran(tmp_path / "b", vocabulary, "seed=9")[1]
    assert [r.event for r in of(first, RequestSent)] != [r.event for r in of(second, RequestSent)]


def test_both_wires_serve_the_same_answers(tmp_path: Path, vocabulary: Vocabulary) -> None:
    """Times differ a little, tokens do not: sampling goes by each request's own seed."""
    told = []
    for wire in ("flow", "packet"):
        records = ran(tmp_path / wire, vocabulary, f"network.wire={wire}")[1]
        told.append({r.event.name: r.event.tokens for r in records if isinstance(r.event, RequestFinished)})
    assert told[0] == told[1]


def test_every_file_keeps_what_a_writer_promises_and_heartbeats_come(tmp_path: Path, vocabulary: Vocabulary) -> None:
    run = prepared(tmp_path)
    seen: list[Progress] = []
    end = simulate(run.plans[0], run.trials[0], vocabulary=vocabulary, progress=seen.append)
    for path in log_files(run.trials[0].events):
        assert check_log(path) >= len(seen)
    assert [progress.t for progress in seen] == [100_000_000 * n for n in range(1, end.t // 100_000_000 + 1)]
    assert seen[-1].requests == 8
    assert [progress.ended for progress in seen] == sorted(progress.ended for progress in seen)


def test_a_time_limit_ends_it_as_errored(tmp_path: Path, vocabulary: Vocabulary) -> None:
    end, records = ran(tmp_path, vocabulary, "time_limit_s=0.05")
    assert end.outcome == "errored"
    assert end.detail.startswith("the time limit of 0.05 s, and ")
    assert of(records, RunFinished)[0].event == RunFinished("errored", end.detail)


def test_a_cancel_ends_it_soon_and_keeps_what_there_is(tmp_path: Path, vocabulary: Vocabulary) -> None:
    run = prepared(tmp_path, "workload.requests=200")
    asked: list[bool] = []

    def cancelled() -> bool:
        asked.append(True)
        return len(asked) >= 3

    end = simulate(run.plans[0], run.trials[0], vocabulary=vocabulary, cancelled=cancelled)
    assert (end.outcome, len(asked)) == ("cancelled", 4)
    records = list(merge(run.trials[0].events))
    assert of(records, RequestSent)
    assert of(records, RunFinished)[0].event == RunFinished("cancelled", "cancelled on request")


class MutteringVocabulary:
    """A vocabulary that breaks when it is asked for one prompt too many: a bug of ours, as far as the run can tell."""

    def __init__(self, real: Vocabulary, good: int) -> None:
        self._real, self._left = real, good
        self.name, self.size, self.eos = real.name, real.size, real.eos
        self.longest_token_bytes = real.longest_token_bytes

    def encode(self, text: str) -> list[int]:
        if len(text) > 100:
            self._left -= 1
        if self._left < 0:
            raise RuntimeError("no more words")
        return self._real.encode(text)

    def token_bytes(self, token: int) -> bytes:
        return self._real.token_bytes(token)


@pytest.mark.parametrize("good", [0, 4])
def test_a_bug_ends_it_as_errored_and_its_traceback_is_kept(
    tmp_path: Path, vocabulary: Vocabulary, good: int
) -> None:
    run = prepared(tmp_path)
    end = simulate(run.plans[0], run.trials[0], vocabulary=MutteringVocabulary(vocabulary, good))
    assert (end.outcome, end.detail) == ("errored", "RuntimeError: no more words")
    records = list(merge(run.trials[0].events))
    (line,) = of(records, LineLogged)
    assert isinstance(line.event, LineLogged)
    assert "Traceback" in line.event.text
    assert of(records, RunFinished)[0].event == RunFinished("errored", end.detail)


def test_a_workload_of_nothing_ends_at_once(tmp_path: Path, vocabulary: Vocabulary) -> None:
    end, records = ran(tmp_path, vocabulary, "workload.requests=0")
    assert end.outcome == "passed"
    assert not of(records, RequestSent)


def test_another_process_with_another_hash_seed_writes_the_same(tmp_path: Path) -> None:
    """What is iterated in an order must not be a set of text: its order changes from process to process."""
    told = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(SMALL), str(folder)],
            cwd=TOP,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told.append(contents(Path(done.stdout.strip())))
    assert told[0] == told[1]
    assert told[0]


PROGRAM = """
import sys
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.reading import read_spec

run = prepare(read_spec(sys.argv[1]), sys.argv[2], clock="simulated")
assert simulate(run.plans[0], run.trials[0]).outcome == "passed"
print(run.folder.events)
"""
