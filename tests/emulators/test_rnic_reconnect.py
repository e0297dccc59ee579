"""A queue pair of the soft RNIC that failed comes back without a new process, when both ends' software ask for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulators.nic_pair import OWNER, REQUESTER, NicPair, wait_for
from emulators.verbs import NicDeclined, UnknownPeer
from testbed.events.log import read_log
from testbed.machine import Completion, CompletionStatus, FetchAdd, Read, Received, RemoteAddress, Send, Write

BAD_KEY, GONE, FLUSHED = (
    CompletionStatus.REMOTE_ACCESS_ERROR, CompletionStatus.RETRY_EXCEEDED, CompletionStatus.FLUSHED
)  # fmt: skip


@pytest.fixture
def pair() -> Iterator[NicPair]:
    with NicPair(receives=4) as pair:
        yield pair


def spoil(pair: NicPair) -> None:
    """Fails the connection at both ends."""
    pair.verbs[REQUESTER].post(Read(0, OWNER, remote=RemoteAddress(pair.remote.address, 99), length=8))
    assert wait_for(pair.verbs[REQUESTER]) == [Completion(0, BAD_KEY)]


def renew(pair: NicPair, turn: int) -> None:
    pair.verbs[REQUESTER].reconnect(OWNER, turn)
    pair.verbs[OWNER].reconnect(REQUESTER, turn)


def carry(pair: NicPair, ticket: int) -> None:
    """All kinds of verbs, each answered as on the first day."""
    software, data, before = pair.verbs[REQUESTER], os.urandom(9000), pair.memory.load(0)
    software.post(Write(ticket, OWNER, remote=pair.remote.at(64), data=data))
    software.post(FetchAdd(ticket + 1, OWNER, remote=pair.remote, addend=1))
    software.post(Read(ticket + 2, OWNER, remote=pair.remote.at(64), length=9000))
    software.post(Send(ticket + 3, OWNER, data=data[:100]))
    assert wait_for(software, 4) == [
        Completion(ticket), Completion(ticket + 1, original=before), Completion(ticket + 2, data=data),
        Completion(ticket + 3),
    ]  # fmt: skip
    assert wait_for(pair.verbs[OWNER]) == [Received(REQUESTER, data[:100])]


def test_it_comes_back_time_and_again(pair: NicPair, soak: bool) -> None:
    """Known fault D6: queue pairs are reset and connected 5,000 times (200 without --soak); nothing grows."""
    process = pair.processes[REQUESTER].pid

    def measured() -> tuple[int, int]:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return len(os.listdir(f"/proc/{process}/fd")), pages

    before = 0, 0
    for turn in range(1, 5001 if soak else 201):
        spoil(pair)
        renew(pair, turn)
        carry(pair, turn)
        if turn == 20:
            before = measured()
    after = measured()
    assert after[0] == before[0]
    assert after[1] < before[1] + 512, "resident memory grew by more than 2 MiB"


def test_after_a_silent_peer(pair: NicPair) -> None:
    os.kill(pair.processes[OWNER].pid, signal.SIGSTOP)
    for ticket in range(3):
        pair.verbs[REQUESTER].post(Write(ticket, OWNER, remote=pair.remote, data=b"old"))
    assert wait_for(pair.verbs[REQUESTER], 3) == [Completion(0, GONE), Completion(1, FLUSHED), Completion(2, FLUSHED)]
    pair.verbs[REQUESTER].reconnect(OWNER, 1)
    os.kill(pair.processes[OWNER].pid, signal.SIGCONT)
    pair.verbs[OWNER].reconnect(REQUESTER, 1)
    carry(pair, 10)


def test_what_is_in_flight_is_flushed(pair: NicPair) -> None:
    os.kill(pair.processes[OWNER].pid, signal.SIGSTOP)
    for ticket in range(5):
        pair.verbs[REQUESTER].post(Write(ticket, OWNER, remote=pair.remote.at(1 << 20), data=b"old"))
    pair.verbs[REQUESTER].reconnect(OWNER, 1)
    assert wait_for(pair.verbs[REQUESTER], 5) == [Completion(ticket, FLUSHED) for ticket in range(5)]
    os.kill(pair.processes[OWNER].pid, signal.SIGCONT)
    pair.verbs[OWNER].reconnect(REQUESTER, 1)
    carry(pair, 10)


def test_one_end_alone_gets_an_error(pair: NicPair) -> None:
    spoil(pair)
    pair.verbs[REQUESTER].reconnect(OWNER, 1)
    pair.verbs[REQUESTER].post(Write(1, OWNER, remote=pair.remote, data=b"lost"))
    assert wait_for(pair.verbs[REQUESTER]) == [Completion(1, GONE)]
    assert not any(pair.memory.view[:8])
    renew(pair, 2)
    carry(pair, 10)


def test_a_connection_that_has_been_is_declined(pair: NicPair) -> None:
    renew(pair, 3)
    with pytest.raises(NicDeclined, match=r"queue pair 0x100 is at connection 3, which is not before 3"):
        pair.verbs[REQUESTER].reconnect(OWNER, 3)
    with pytest.raises(UnknownPeer):
        pair.verbs[REQUESTER].reconnect("nobody", 4)
    carry(pair, 1)


def test_the_log_names_whom_it_could_not_reach(pair: NicPair) -> None:
    """Known fault D7: a failed connection is named with the peer's address."""
    pair.processes[OWNER].kill()
    pair.processes[OWNER].wait()
    pair.verbs[REQUESTER].post(Read(1, OWNER, remote=pair.remote, length=8))
    assert wait_for(pair.verbs[REQUESTER]) == [Completion(1, GONE)]
    pair.processes[REQUESTER].terminate()
    pair.processes[REQUESTER].wait()
    said = [str(record.event) for record in read_log(pair.folder / "events" / f"{REQUESTER}-nic.jsonl")]
    assert any(f"to {OWNER} at {pair.addresses[1]} failed: RETRY_EXCEEDED" in text for text in said)
