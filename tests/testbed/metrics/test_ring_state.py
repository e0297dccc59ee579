from __future__ import annotations

import pytest

from testbed.events.run_events import NodeReady
from testbed.events.schema import PromptWritten, RequestAbandoned, RequestServed, SlotMoved
from testbed.metrics.fold import Folding
from testbed.metrics.ring_state import RingFold, RingView
from tests.testbed.metrics.stories import Story, serve, small_run

E, PP, PR, DP, DC = "empty", "prefill_pending", "prefill_processing", "decode_processing", "decode_completed"


def view(*moves: tuple[str, str], slot: int = 5) -> RingView:
    story = Story()
    for t, (before, after) in enumerate(moves):
        story.at(t, "gpu0", SlotMoved(slot, 1, before, after, 9))
    found: RingView = Folding({"r": RingFold()}).take_all(story.records()).result("r")
    return found


@pytest.mark.parametrize(
    ("moves", "state", "gap"),
    [
        ([(E, PP), (PP, PR), (PR, DP)], DP, False),
        # The DPU's move is logged after the GPU's that followed it.
        ([(PP, PR), (E, PP), (PR, DP)], DP, False),
        ([(E, PP), (PP, PR), (PR, DP), (DP, DC), (DC, E), (PP, PR), (E, PP)], PR, False),
        # Two late moves in a row.
        ([(E, PP), (PP, PR), (PR, DP), (DP, DC), (PP, PR), (DC, E), (E, PP)], PR, False),
        # Further moves of the GPU before the late one comes.
        ([(E, PP), (PP, E), (PP, PR), (PR, DP), (E, PP)], DP, False),
        # A move is missing.
        ([(E, PP), (PR, DP)], DP, True),
        ([(E, PP), (PP, PR), (DP, DC), (DC, E)], E, True),
        # What was before the first known move is unknown, which is no gap.
        ([(PR, DP)], DP, False),
        # A request fills its slot once: the second word of it changes nothing.
        ([(E, PP), (PR, DP), (E, PP), (PP, PR)], DP, False),
        # Two gaps, only the later one of them filled.
        ([(E, PP), (PR, DP), (DC, E), (DP, DC)], E, True),
    ],
)
def test_late_moves_fill_gaps_and_missing_ones_stay(moves: list[tuple[str, str]], state: str, gap: bool) -> None:
    found = view(*moves)
    assert found.moves == len(moves)
    assert found.gaps == ((("gpu0", 5),) if gap else ())
    assert found.slots[0].state == state
    assert found.counts == {state: 1}


def test_a_late_move_changes_neither_state_nor_time() -> None:
    found = view((PP, PR), (E, PP))
    assert (found.slots[0].state, found.slots[0].moved) == (PR, 0)


def test_a_run_leaves_every_slot_empty_and_without_a_gap() -> None:
    found = Folding({"r": RingFold()}).take_all(small_run(requests=5)).result("r")
    assert found.counts == {E: 5}
    assert found.gaps == ()


def moved(before: str, after: str, request: int, slot: int = 5) -> SlotMoved:
    return SlotMoved(slot, 1, before, after, request)


def of_front_end(story: Story, *, explicit: bool) -> RingView:
    """Two requests one after the other in a slot; the second's claim is logged before its filling."""
    filled = [PromptWritten(1, 5, 1, 40, 2, 1, "gpu0")]
    story.at(1, "dpu0", *filled).at(1, "gpu0", *([moved(E, PP, 1)] if explicit else []))
    story.at(2, "gpu0", moved(PP, PR, 1)).at(3, "gpu0", moved(PR, DP, 1)).at(4, "gpu0", moved(DP, DC, 1))
    story.at(5, "dpu0", RequestServed(1, 3, "length")).at(5, "gpu0", *([moved(DC, E, 1)] if explicit else []))
    story.at(6, "gpu0", moved(PP, PR, 2))
    story.at(7, "dpu0", PromptWritten(2, 5, 2, 40, 2, 1, "gpu0"))
    story.at(7, "gpu0", *([moved(E, PP, 2)] if explicit else []))
    found: RingView = Folding({"r": RingFold()}).take_all(story.records()).result("r")
    return found


@pytest.mark.parametrize("explicit", [True, False])
def test_the_front_ends_events_fill_and_free_whether_or_not_the_gpu_logs_these_moves_too(explicit: bool) -> None:
    found = of_front_end(Story(), explicit=explicit)
    assert (found.slots[0].state, found.slots[0].request, found.slots[0].moved) == (PR, 2, 6_000_000)
    assert found.gaps == ()


def test_a_slot_is_empty_once_its_request_is_served_or_abandoned() -> None:
    story = Story().at(1, "dpu0", PromptWritten(1, 5, 1, 9, 1, 1, "gpu0"), PromptWritten(2, 6, 1, 9, 1, 1, "gpu0"))
    story.at(2, "dpu0", RequestServed(1, 3, "stop")).at(3, "dpu0", RequestAbandoned(2), RequestAbandoned(7))
    found = Folding({"r": RingFold()}).take_all(story.records()).result("r")
    assert found.counts == {E: 2}


def test_an_end_that_is_logged_late_does_not_empty_the_next_requests_slot() -> None:
    story = Story()
    for request in (1, 2):
        story.at(request, "dpu0", PromptWritten(request, 5, request, 9, 1, 1, "gpu0"))
    found = Folding({"r": RingFold()}).take_all(story.at(3, "dpu0", RequestServed(1, 3, "stop")).records()).result("r")
    assert (found.slots[0].state, found.slots[0].request) == (PP, 2)


def two_rings(*, told: bool) -> Story:
    """Slot 5 of two rings at once, and of the second once more."""
    story = Story().at(0, "gpu0", NodeReady("gpu", 1)).at(0, "gpu1", NodeReady("gpu", 2))
    for request, t, gpu in ((1, 10, "gpu0"), (2, 12, "gpu1"), (3, 200, "gpu1")):
        serve(story, request, t, slot=5, gpu=gpu, told=told)
    return story


def fold(story: Story) -> RingView:
    found: RingView = Folding({"r": RingFold()}).take_all(story.records()).result("r")
    return found


@pytest.mark.parametrize("told", [True, False])
def test_one_number_in_two_rings_is_two_slots(told: bool) -> None:
    found = fold(two_rings(told=told))
    slots = [(one.ring, one.slot, one.state, one.request) for one in found.slots]
    assert slots == [("gpu0", 5, E, 1), ("gpu1", 5, E, 3)]
    assert found.counts == {E: 2}
    assert found.gaps == ()
    before = Story()
    for record in two_rings(told=told).records():
        if record.t < 20_000_000:
            before.at(record.t / 1e6, record.node, record.event)
    assert [(one.ring, one.state) for one in fold(before).slots] == [("gpu0", PR), ("gpu1", PR)]


def test_a_prompt_without_a_ring_is_in_that_of_the_only_gpu() -> None:
    story = Story().at(0, "gpu7", NodeReady("gpu", 1)).at(0, "dpu0", NodeReady("dpu", 2))
    found = fold(story.at(1, "dpu0", PromptWritten(1, 5, 1, 9, 1, 1)))
    assert [(one.ring, one.slot, one.state) for one in found.slots] == [("gpu7", 5, PP)]


def test_a_prompt_of_which_no_ring_is_known_has_a_slot_once_a_gpu_moves_it() -> None:
    story = Story().at(0, "gpu0", NodeReady("gpu", 1)).at(0, "gpu1", NodeReady("gpu", 2))
    story.at(1, "dpu0", *(PromptWritten(request, 5, 1, 9, 1, 1) for request in (1, 2, 3)))
    assert fold(story).slots == ()
    story.at(2, "gpu1", moved(PP, PR, 1)).at(3, "dpu0", RequestAbandoned(2)).at(4, "gpu1", moved(PR, DC, 1))
    found = fold(story.at(5, "dpu0", RequestServed(1, 1, "stop")).at(6, "gpu1", moved(PP, PR, 3)))
    assert [(one.ring, one.slot, one.state, one.request) for one in found.slots] == [("gpu1", 5, PR, 3)]
    assert found.gaps == ()
