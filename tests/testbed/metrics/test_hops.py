"""Hops: figures worked out by hand."""

from __future__ import annotations

from testbed.events import schema
from testbed.metrics.fold import Folding
from testbed.metrics.hops import HopFold, Hops, VerbTime
from tests.testbed.metrics.stories import Story

MS = 1_000_000


def hops(story: Story) -> Hops:
    found = Folding({"hops": HopFold()}).take_all(story.records()).result("hops")
    assert isinstance(found, Hops)
    return found


def request(story: Story, *, client: bool = True) -> Story:
    if client:
        story.at(0, "client0", schema.RequestSent("a", 0, 0, 3, 2))
    story.at(1, "dpu0", schema.RequestArrived(1, "a", 9, 2))
    story.at(2, "dpu0", schema.PromptWritten(1, 5, 1, 12, 3, 1))
    story.at(6, "gpu0", schema.SlotClaimed(1, 5, 1, 9))
    story.at(10, "gpu0", schema.TokensPublished(1, (1,), (1,)))
    story.at(16, "gpu0", schema.TokensPublished(2, (1,), (2,)))
    story.at(18, "dpu0", schema.TokensStreamed(1, 0, 2))
    if client:
        story.at(19, "client0", schema.TokenReceived("a", 0, 2))
    return story


def test_each_hop_of_one_request() -> None:
    found = hops(request(Story()))
    assert found.submit_to_claim == (4 * MS,)
    assert found.publish_to_client == (9 * MS, 3 * MS)
    assert found.to_front_end == (MS,)
    assert found.to_client == (MS, MS)
    assert found.verbs == ()


def test_without_a_client_publishing_ends_at_the_streaming() -> None:
    found = hops(request(Story(), client=False))
    assert found.publish_to_client == (8 * MS, 2 * MS)
    assert found.to_client == found.to_front_end == ()


def test_a_slot_used_again_is_another_submission() -> None:
    story = request(Story())
    story.at(30, "dpu0", schema.PromptWritten(2, 5, 2, 12, 3, 1))
    story.at(31, "gpu0", schema.SlotClaimed(2, 5, 2, 19))
    assert hops(story).submit_to_claim == (4 * MS, MS)


def test_a_claim_that_is_logged_before_its_submission_has_waited_for_nothing() -> None:
    story = Story().at(3, "gpu0", schema.SlotClaimed(1, 5, 1, 9)).at(4, "dpu0", schema.PromptWritten(1, 5, 1, 12, 3, 1))
    assert hops(story).submit_to_claim == (0,)


def test_round_trips_are_taken_as_they_were_measured() -> None:
    story = Story().at(1, "dpu0", schema.VerbsMeasured("swap", 8, 3, 250_000, 400_000))
    assert hops(story).verbs == (VerbTime("swap", 8, 3, 250_000),)
