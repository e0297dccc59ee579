"""What the tests of the soft RNIC ask of a pair of NICs: verbs posted by the requester, and how they ended."""

from __future__ import annotations

from emulators.nic_pair import REQUESTER, NicPair, wait_for
from testbed.machine import Completion, Verb


def post(pair: NicPair, *verbs: Verb) -> list[Completion]:
    """Posts `verbs` at the requester and waits for their completions."""
    software = pair.verbs[REQUESTER]
    for verb in verbs:
        software.post(verb)
    found = wait_for(software, len(verbs))
    assert all(isinstance(message, Completion) for message in found)
    return found  # type: ignore[return-value]


def statuses(completions: list[Completion]) -> list[str]:
    """Their names, in order."""
    return [completion.status.name for completion in completions]
