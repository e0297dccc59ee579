"""The soft RNIC when software, NIC or peer sleeps, stops or dies: memory stays, verbs end, nothing hangs or leaks."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulators.nic_pair import OWNER, REGION, REQUESTER, NicPair, wait_for
from emulators.verbs import Verbs
from emulators.verbs_ring import QueueSizes
from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    FetchAdd,
    Read,
    Received,
    Send,
    Write,
)
from tests.emulators.nic_work import post, statuses

# --- software that sleeps, stops, dies ----------------------------------------------------------------------------

LENDER = """
import sys, time
from pathlib import Path
from emulators.nic_pair import REGION
from emulators.verbs import Verbs
from testbed.experiment.plan import read_plan
folder = Path(sys.argv[1])
node = read_plan((folder / "plan.json").read_bytes()).node("gpu0")
verbs = Verbs.connect(folder / "gpu0.nic", node)
memory = verbs.register(REGION)
memory.view[:5] = b"alive"
print("lent", flush=True)
while True:
    time.sleep(0.001)
    memory.fetch_add(64, 1)
"""


@pytest.fixture
def lent(pair: NicPair) -> Iterator[tuple[NicPair, subprocess.Popen[str]]]:
    """The owner's software is a process of its own."""
    pair.verbs.pop(OWNER).close()
    lender = subprocess.Popen([sys.executable, "-c", LENDER, str(pair.folder)], stdout=subprocess.PIPE, text=True)
    assert lender.stdout is not None
    assert lender.stdout.readline() == "lent\n"
    yield pair, lender
    lender.kill()
    lender.communicate()


def test_one_sided_verbs_do_not_need_the_owners_software(lent: tuple[NicPair, subprocess.Popen[str]]) -> None:
    pair, lender = lent
    lender.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{lender.pid}/stat").read_text().split()[2] != "T":
        time.sleep(0.01)
    (counted,) = post(pair, Read(1, OWNER, remote=pair.remote.at(64), length=8))
    completions = post(
        pair,
        Read(2, OWNER, remote=pair.remote, length=5),
        Write(3, OWNER, remote=pair.remote.at(8), data=b"while stopped"),
        CompareSwap(4, OWNER, remote=pair.remote.at(32), expected=0, desired=5),
        FetchAdd(5, OWNER, remote=pair.remote.at(32), addend=6),
        Read(6, OWNER, remote=pair.remote, length=72),
    )
    assert set(statuses(completions)) == {"SUCCESS"}
    assert completions[0].data == b"alive"
    after = completions[-1].data
    assert after[8:21] == b"while stopped"
    assert int.from_bytes(after[32:40], "little") == 11
    assert after[64:72] == counted.data, "the software ran"


def test_software_that_is_killed_leaves_its_memory_and_may_come_again(
    lent: tuple[NicPair, subprocess.Popen[str]],
) -> None:
    pair, lender = lent
    lender.kill()
    lender.wait()
    (read,) = post(pair, Read(1, OWNER, remote=pair.remote, length=5))
    assert read.data == b"alive", "the region went with its software"
    again = pair.verbs[OWNER] = pair.connect(OWNER)
    memory = again.register(REGION)
    memory.view[:5] = b"newer"
    (read,) = post(pair, Read(2, OWNER, remote=pair.remote, length=5))
    assert read.data == b"newer"
    # The receives that the dead one lent are used by the new one: each SEND lands once, none is lost.
    for ticket in range(40):
        assert statuses(post(pair, Send(ticket, OWNER, data=b"%d" % ticket))) == ["SUCCESS"]
        assert wait_for(again) == [Received(REQUESTER, b"%d" % ticket)]
    memory.close()


def test_what_a_dead_software_posted_is_not_answered_to_its_successor(pair: NicPair) -> None:
    requester = pair.verbs.pop(REQUESTER)
    os.kill(pair.processes[OWNER].pid, signal.SIGSTOP)
    for ticket in range(20):
        requester.post(Write(ticket, OWNER, remote=pair.remote, data=b"old" * 1000))
    time.sleep(0.05)
    requester.close()
    pair.verbs[REQUESTER] = pair.connect(REQUESTER)
    pair.verbs[REQUESTER].post(Read(100, OWNER, remote=pair.remote, length=3))
    os.kill(pair.processes[OWNER].pid, signal.SIGCONT)
    (read,) = wait_for(pair.verbs[REQUESTER])
    assert read == Completion(100, data=b"old")
    assert pair.verbs[REQUESTER].poll() == []


def test_many_connections_leave_the_nic_as_it_was(pair: NicPair, soak: bool) -> None:
    """Known fault D6: 5,000 connections (300 without --soak) leave descriptors and memory of both NICs flat."""
    pair.verbs.pop(REQUESTER).close()
    sizes = QueueSizes(requests=32, completions=64, staging=1 << 17)

    def connect(times: int) -> None:
        for _ in range(times):
            verbs = Verbs.connect(pair.socket(REQUESTER), pair.plan.node(REQUESTER), sizes=sizes)
            verbs.post(Read(1, OWNER, remote=pair.remote, length=8))
            assert len(wait_for(verbs)) == 1
            verbs.close()

    def descriptors() -> list[int]:
        """The fewest within half a second, of each NIC: it hears of the last one's end a little later."""
        counts = []
        for _ in range(50):
            time.sleep(0.01)
            counts.append([len(os.listdir(f"/proc/{nic.pid}/fd")) for nic in pair.processes.values()])
        return list(map(min, zip(*counts, strict=True)))

    def pages() -> list[int]:
        return [int(Path(f"/proc/{nic.pid}/statm").read_text().split()[1]) for nic in pair.processes.values()]

    connect(20)
    open_before, pages_before = descriptors(), pages()
    connect(5000 if soak else 300)
    assert descriptors() == open_before
    grown = [after - before for after, before in zip(pages(), pages_before, strict=True)]
    assert max(grown) < 512, f"resident memory grew by {grown} pages, more than 2 MiB"


# --- parts that die -----------------------------------------------------------------------------------------------


def test_when_the_nic_dies_all_verbs_end_and_no_call_hangs(pair: NicPair) -> None:
    software = pair.verbs[REQUESTER]
    os.kill(pair.processes[OWNER].pid, signal.SIGSTOP)
    for ticket in range(5):
        software.post(Write(ticket, OWNER, remote=pair.remote, data=b"x"))
    pair.processes[REQUESTER].kill()
    assert wait_for(software, 5) == [Completion(ticket, CompletionStatus.FLUSHED) for ticket in range(5)]
    assert software.lost
    software.post(Write(9, OWNER, remote=pair.remote, data=b"x"))
    assert not software.arm(), "there is something to poll"
    assert software.poll() == [Completion(9, CompletionStatus.FLUSHED)]
    assert software.arm()
    assert not select.select([software.completion_fd], (), (), 0)[0], "a caller that sleeps on it would spin"
    os.kill(pair.processes[OWNER].pid, signal.SIGCONT)


def test_a_caller_that_only_polls_learns_that_the_nic_is_gone(pair: NicPair) -> None:
    software = pair.verbs[REQUESTER]
    os.kill(pair.processes[OWNER].pid, signal.SIGSTOP)
    software.post(Write(1, OWNER, remote=pair.remote, data=b"x"))
    pair.processes[REQUESTER].kill()
    pair.processes[REQUESTER].wait()
    found = [message for _ in range(2000) for message in software.poll()]
    assert found == [Completion(1, CompletionStatus.FLUSHED)]
    os.kill(pair.processes[OWNER].pid, signal.SIGCONT)


def test_a_peer_that_is_gone_ends_verbs_by_retry_limit(pair: NicPair) -> None:
    pair.processes[OWNER].kill()
    pair.processes[OWNER].wait()
    completions = post(
        pair,
        Read(1, OWNER, remote=pair.remote, length=100_000),
        Write(2, OWNER, remote=pair.remote, data=b"x"),
    )
    assert statuses(completions) == ["RETRY_EXCEEDED", "FLUSHED"]
