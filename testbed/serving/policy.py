"""Admission policies: who of those who wait joins the batch now. This is what a student or a researcher replaces.

A policy sees numbers and answers with a choice; it moves nothing, allocates nothing and has no clock. Blink is first
come, first served, like the systems that it is compared with (summary, "continuous batching").
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from testbed.units import Nanoseconds


class Candidate(NamedTuple):
    """One request that waits."""

    key: int
    """How the asker knows it (a slot's number)."""
    request: int
    """Number of the request: ascending in order of arrival."""
    prompt_tokens: int
    max_tokens: int
    blocks: int
    """KV blocks that it needs."""


class AdmissionView(NamedTuple):
    """What a policy may know."""

    candidates: tuple[Candidate, ...]
    """Those who wait, in order of arrival; at most the policy's `lookahead`."""
    running: int
    places: int
    """How many may be admitted: free places of the batch, launches left, prompts a pause may take."""
    blocks_free: int


class AdmissionPolicy(Protocol):
    """Chooses whom to admit."""

    lookahead: int
    """How many candidates it wants to see; 0: as many as there are places."""

    def choose(self, now: Nanoseconds, view: AdmissionView) -> tuple[Candidate, ...]:
        """The candidates to admit, in the order of their prefills: at most `places`, together within `blocks_free`."""
        ...


class FirstComeFirstServed:
    """In order of arrival; who does not fit holds up those behind, so nobody starves."""

    lookahead = 0

    def choose(self, now: Nanoseconds, view: AdmissionView) -> tuple[Candidate, ...]:  # noqa: ARG002  # the contract
        """The longest run from the front that fits."""
        admitted: list[Candidate] = []
        blocks = view.blocks_free
        for candidate in view.candidates[: view.places]:
            if candidate.blocks > blocks:
                break
            blocks -= candidate.blocks
            admitted.append(candidate)
        return tuple(admitted)
