"""Work that is really done: how much, in which order, and what of it the process's own code has done already."""

from __future__ import annotations

import json
import select
import time

import pytest

from emulators.host_churn import MAPPING_ROUNDS, VISITS, Churn
from emulators.host_processor import MOST_OWED, Calibration, RealProcessor, calibrate
from emulators.node import NodeRun
from testbed.events.host_events import HostOperation, ProcessorCalibrated
from testbed.events.log import read_log
from testbed.experiment.plan import NodePlan, Plan, write_plan
from testbed.machine import Compute, MachineError
from testbed.serving.host_work import HostWork, HostWorked
from testbed.serving.requests import Abandon
from testbed.units import MILLISECOND

ROUNDS_PER_MS = 100.0


class CountingChurn(Churn):
    """Counts rounds and does them."""

    def __init__(self):
        super().__init__(1 << 16)
        self.done = []

    def rounds(self, number):
        self.done.append(number)
        super().rounds(number)


class Asker:
    """Asks for pieces when told, and keeps the answers; spends `own` nanoseconds of CPU on each answer."""

    name = "core"

    def __init__(self, own=0):
        self.own, self.answers = own, []

    def deadline(self):
        return None

    def wake(self, now):
        return ()

    def receive(self, now, message):
        if isinstance(message, HostWorked):
            self.answers.append(message)
            until = time.thread_time_ns() + self.own
            while time.thread_time_ns() < until:
                pass
            return ()
        return [
            Compute(HostWork(ticket, self.name, "update", int(amount)))
            for ticket, amount in enumerate(message.name.split(","))
        ]


class Bench:
    """One process of a host with a processor, told by hand when to take a turn."""

    def __init__(self, folder, *, dilation=1.0, own=0):
        made = Plan(
            run="20260101-000000-abcdef", label="abcdef", clock="wall", system="s", kind="k", seed=1,
            dilation=dilation, byte_scale=1, path_mtu=4096, fabrics=(), parameters={}, workload={},
            nodes=(NodePlan("host0", "host", "host", 64, processes=(("api",), ("core",))),),
        )  # fmt: skip
        (folder / "control").mkdir()
        (folder / "plan.json").write_bytes(write_plan(made))
        start = {"epoch_monotonic_ns": time.monotonic_ns(), "dilation": dilation}
        (folder / "control" / "start.json").write_text(json.dumps(start))
        self.folder = folder
        self.run = NodeRun(folder, "host0", "core")
        self.churn, self.asker = CountingChurn(), Asker(own)
        self.processor = RealProcessor(self.run, "core", self.churn)
        with pytest.raises(MachineError, match="not been calibrated"):
            self.processor.submit(0, HostWork(1, "core", "update", 1))
        self.processor.calibrate(Calibration(ROUNDS_PER_MS, 1.2))
        self.run.attach((self.asker,), self.processor)

    def ask(self, *amounts):
        self.run.deliver("core", Abandon(",".join(map(str, amounts))))

    def waiting(self):
        return bool(select.select([*self.run.watched], (), (), 0)[0])

    def work(self):
        while self.waiting():
            self.run.turn()

    def events(self, kind):
        self.run.writer.flush()
        log = read_log(self.folder / "events" / "host0-core.jsonl")
        return [record.event for record in log if isinstance(record.event, kind)]

    def close(self):
        self.run.finish(0)
        self.processor.close()


@pytest.fixture
def make(tmp_path):
    made = []

    def build(**settings):
        made.append(Bench(tmp_path, **settings))
        return made[-1]

    yield build
    for bench in made:
        bench.close()


def test_pieces_are_done_one_a_turn_in_order_and_each_is_answered_once(make):
    bench = make()
    assert not bench.waiting()
    bench.ask(MILLISECOND, 0, MILLISECOND // 2)
    assert bench.asker.answers == [], "a piece is not done where it is asked for"
    bench.run.turn()
    assert [answer.ticket for answer in bench.asker.answers] == [0]
    bench.work()
    assert [answer.ticket for answer in bench.asker.answers] == [0, 1, 2]
    assert not bench.waiting(), "with nothing to do the loop may sleep"
    operations = bench.events(HostOperation)
    assert [(each.process, each.operation, each.amount) for each in operations] == [
        ("core", "update", MILLISECOND), ("core", "update", 0), ("core", "update", MILLISECOND // 2)
    ]  # fmt: skip
    assert [each.elapsed for each in operations] == [answer.elapsed for answer in bench.asker.answers]
    assert bench.events(ProcessorCalibrated) == [ProcessorCalibrated("core", 100.0, 1.2, bench.churn.working_set_bytes)]


def test_work_of_an_amount_is_as_many_rounds_as_were_calibrated(make):
    bench = make()
    bench.ask(*[10 * MILLISECOND] * 5)
    bench.work()
    # What the turns themselves have cost is paid out of the amounts: at most 2 ms at a time.
    assert all(0.8 * 1000 <= rounds <= 1000 for rounds in bench.churn.done[1:])
    assert all(answer.elapsed > 0 for answer in bench.asker.answers)


def test_what_the_process_has_done_itself_is_paid_out_of_the_amount(make):
    bench = make(own=MILLISECOND)
    bench.ask(4 * MILLISECOND, 4 * MILLISECOND, MILLISECOND // 4)
    bench.work()
    first, second, last = bench.churn.done
    # How much it is follows from how fast churn is here, beside what was claimed: what has slowed it slowed the code.
    assert second < first
    assert last <= 25
    bench.ask(*[100_000] * 10)
    bench.work()
    assert min(bench.churn.done) == 0, "a small piece may be paid in whole"


def test_it_owes_no_more_than_one_pieces_worth_of_what_it_did_without_work(make):
    bench = make(own=20 * MILLISECOND)
    bench.ask(0)
    bench.work()
    bench.ask(10 * MILLISECOND)
    bench.work()
    assert bench.churn.done[-1] >= 800


def test_real_work_is_not_stretched_by_dilation(make):
    bench = make(dilation=10.0)
    begin = time.monotonic_ns()
    bench.ask(20 * MILLISECOND)
    bench.work()
    elapsed = time.monotonic_ns() - begin
    assert bench.churn.done[-1] >= 1800
    assert bench.asker.answers[0].elapsed <= (elapsed + MOST_OWED) / 10


def test_anything_but_host_work_is_refused(make):
    with pytest.raises(MachineError, match="str"):
        make().processor.submit(0, "work")


def test_a_round_visits_objects_all_over_the_heap_and_in_turn():
    churn = Churn(1 << 16)
    items, seen = churn._at, []
    while not seen or items is not seen[0]:
        seen.append(items)
        items = items.next
    assert len(seen) > 100
    assert sorted(each.uses for each in seen) == sorted({each.uses for each in seen})
    assert [each.uses for each in seen] != sorted(each.uses for each in seen)
    before = sum(each.uses for each in seen)
    churn.rounds(2 * MAPPING_ROUNDS)
    assert sum(each.uses for each in seen) == before + 2 * MAPPING_ROUNDS * VISITS


def test_a_working_set_that_holds_no_round_is_refused():
    with pytest.raises(ValueError, match="a round needs"):
        Churn(1000)


def test_calibration_says_how_many_rounds_a_millisecond_of_cpu_has():
    churn = Churn(1 << 20)
    rounds_per_ms, spread = calibrate(churn, 20, 0.0)
    assert spread >= 1
    begin = time.thread_time_ns()
    churn.rounds(round(50 * rounds_per_ms))
    used = (time.thread_time_ns() - begin) / MILLISECOND
    assert 15 < used < 150, "50 ms of it take about 50 ms of CPU"
