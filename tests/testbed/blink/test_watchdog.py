"""The watchdog alone: what it takes for life, when it asks, when it stops asking."""

from __future__ import annotations

from itertools import product

import pytest

from testbed.blink.control_line import Control
from testbed.blink.parameters import BlinkParameters
from testbed.blink.watchdog import LOOKS, WATCH_TABLE, Watchdog, WatchMove, WatchState
from testbed.events.blink_events import WatchdogCalmed, WatchdogFired, WatchdogGaveUp
from testbed.machine import Effect, Emit, Event
from testbed.serving.transitions import IllegalMove

MS = 1_000_000
PARAMETERS = BlinkParameters(
    watchdog_patience=40 * MS, heartbeat_interval=10 * MS, restart_patience=100 * MS, restart_limit=2,
    restart_window=1_000 * MS,
)  # fmt: skip


class Story:
    """A watchdog, the line it reads and what came of it."""

    def __init__(self, parameters: BlinkParameters = PARAMETERS) -> None:
        self.watchdog = Watchdog(parameters, "gpu0")
        self.line = Control(5, 0, 0, 0)
        self.asked: list[tuple[int, tuple[int, int]]] = []
        self.out: list[Effect] = []

    def until(self, end: int, *, beating: bool = False) -> Story:
        """Looks whenever it wants to, up to `end` ms; a living heart moves between any two looks."""
        while (due := self.watchdog.due) is not None and due <= end * MS:
            if beating:
                self.line = self.line._replace(heartbeat=self.line.heartbeat + 1)
            self.watchdog.reading = True
            words = self.watchdog.observe(due, self.line, self.out)
            if words is not None:
                self.asked.append((due // MS, words))
        return self

    @property
    def events(self) -> list[Event]:
        return [effect.event for effect in self.out if isinstance(effect, Emit)]


@pytest.mark.parametrize(("state", "move"), list(product(WatchState, WatchMove)), ids=lambda value: value.name.lower())
def test_every_move_in_every_state(state: WatchState, move: WatchMove) -> None:
    if WATCH_TABLE.allows(state, move):
        assert WATCH_TABLE.after(state, move) in WatchState
    else:
        with pytest.raises(IllegalMove):
            WATCH_TABLE.after(state, move)


def test_nobody_is_missed_while_nothing_is_awaited() -> None:
    story = Story()
    assert story.watchdog.due is None
    story.watchdog.awaiting(0, something=True)
    assert story.watchdog.due == 40 * MS // LOOKS
    story.watchdog.awaiting(5 * MS, something=False)
    assert story.until(1_000).watchdog.state is WatchState.IDLE
    assert not story.asked


def test_a_line_that_was_asked_for_and_comes_when_nothing_is_awaited_any_more_says_nothing() -> None:
    story = Story()
    story.watchdog.awaiting(0, something=True)
    story.watchdog.reading = True
    story.watchdog.awaiting(1, something=False)
    assert story.watchdog.observe(2, story.line, story.out) is None
    assert story.watchdog.due is None


def test_tokens_are_life_enough_and_nothing_is_read() -> None:
    story = Story()
    story.watchdog.awaiting(0, something=True)
    for ms in range(0, 200, 5):
        story.watchdog.tokens_seen(ms * MS)
        assert story.watchdog.due == (ms + 10) * MS


def test_a_heart_that_beats_during_a_long_prefill_is_life_too() -> None:
    story = Story()
    story.watchdog.awaiting(0, something=True)
    assert not story.until(5_000, beating=True).asked
    assert not story.events


def test_a_heart_that_stands_still_for_the_patience_is_a_dead_scheduler() -> None:
    story = Story()
    story.watchdog.awaiting(0, something=True)
    story.until(60)
    assert story.asked == [(40, (0, 1))]
    assert story.events == [WatchdogFired(0, 40 * MS, 1, "gpu0")]
    story.line = Control(9, 1, 1, 0)
    story.until(70)
    assert story.watchdog.state is WatchState.WATCHING
    assert story.events[1:] == [WatchdogCalmed(1, 70 * MS, "gpu0")]


def test_what_another_front_end_has_asked_for_is_not_asked_for_again() -> None:
    story = Story()
    story.line = Control(5, 3, 4, 0)
    story.watchdog.awaiting(0, something=True)
    story.until(60)
    assert not story.asked
    assert story.watchdog.state is WatchState.RESTARTING


def test_a_new_life_that_never_beats_is_replaced_and_after_the_limit_it_gives_up() -> None:
    story = Story()
    story.watchdog.awaiting(0, something=True)
    story.until(100)
    story.line = Control(5, 1, 1, 0)
    story.until(400)
    assert story.asked == [(40, (0, 1)), (140, (1, 2))]
    assert story.events[-1] == WatchdogGaveUp(1, 2, "gpu0")
    assert story.watchdog.given_up
    story.watchdog.awaiting(400 * MS, something=False)
    assert story.watchdog.due is not None, "who has given up looks on, rarely"
    story.line = Control(6, 2, 2, 0)
    story.until(445)
    assert isinstance(story.events[-1], WatchdogCalmed)
    assert not story.watchdog.given_up
    story.watchdog.awaiting(446 * MS, something=False)
    assert story.watchdog.due is None


def test_restarts_that_are_long_past_are_forgiven() -> None:
    story = Story()
    story.watchdog.awaiting(0, something=True)
    for life in range(6):
        start = life * 2_000
        story.until(start + 60)
        story.line = Control(10 + life, life + 1, life + 1, 0)
        story.until(start + 1_990, beating=True)
        story.line = story.line._replace(heartbeat=story.line.heartbeat + 1)
        story.until(start + 2_000)
    assert len(story.asked) == 6
    assert not any(isinstance(event, WatchdogGaveUp) for event in story.events)


def test_a_gpu_that_cannot_be_reached_is_not_therefore_dead() -> None:
    story = Story()
    story.watchdog.awaiting(0, something=True)
    for ms in (30, 300, 600):
        story.watchdog.reading = True
        story.watchdog.failed(ms * MS)
        assert story.watchdog.due == ms * MS + 2 * PARAMETERS.poll_outage_interval
    story.until(820)
    assert not story.asked, "two looks close together say nothing"
    assert story.until(840).asked == [(830, (0, 1))]


def test_a_patience_of_0_leaves_it_asleep() -> None:
    story = Story(BlinkParameters(watchdog_patience=0))
    story.watchdog.awaiting(0, something=True)
    assert story.watchdog.due is None


def test_a_patience_shorter_than_a_few_heartbeats_is_refused() -> None:
    with pytest.raises(ValueError, match="watchdog_patience must be 0 or at least four times heartbeat_interval"):
        BlinkParameters(watchdog_patience=30 * MS, heartbeat_interval=10 * MS)
