"""The conformance suite of admission policies: every policy there is must pass it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.serving.policy import AdmissionPolicy, AdmissionView, Candidate, FirstComeFirstServed

POLICIES: list[AdmissionPolicy] = [FirstComeFirstServed()]

views = st.builds(
    lambda blocks, places, free: AdmissionView(
        tuple(Candidate(index, index + 1, 10, 10, count) for index, count in enumerate(blocks)), 3, places, free
    ),
    st.lists(st.integers(1, 9), max_size=8),
    st.integers(0, 8),
    st.integers(0, 30),
)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@given(view=views)
def test_who_is_admitted_waits_fits_and_is_admitted_once(policy: AdmissionPolicy, view: AdmissionView) -> None:
    chosen = policy.choose(0, view)
    assert len(set(chosen)) == len(chosen) <= max(0, view.places)
    assert set(chosen) <= set(view.candidates)
    assert sum(candidate.blocks for candidate in chosen) <= view.blocks_free


@given(view=views)
def test_first_come_is_first_served_and_nobody_is_passed_by(view: AdmissionView) -> None:
    chosen = FirstComeFirstServed().choose(0, view)
    assert chosen == view.candidates[: len(chosen)]
    if len(chosen) < min(len(view.candidates), view.places):
        held_up = view.candidates[len(chosen)]
        assert held_up.blocks > view.blocks_free - sum(candidate.blocks for candidate in chosen)
