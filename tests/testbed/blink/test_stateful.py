"""A Hypothesis model of the whole server: random requests, departures, failures and pauses, and laws that hold.

The model keeps what a client may expect. Real front end, scheduler and device run beneath over the small wire; time
is advanced by hand.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testbed.blink.slots import incarnation_of, state_of
from testbed.events.run_events import LineLogged
from testbed.events.schema import DeviceFaulted, RequestAbandoned, RequestServed
from testbed.machine import CompletionStatus
from testbed.serving.requests import Refused, Tokens
from tests.testbed.blink.world import World, small


class Server(RuleBasedStateMachine):
    """Clients come and go; the wire may be down for a while."""

    @initialize(
        batch=st.integers(1, 4), pause=st.integers(1, 3), window=st.sampled_from([2, 3, 7, 120]),
        beyond=st.fixed_dictionaries({
            "launch_mode": st.sampled_from(["fire_and_forget", "tail", "host"]),
            "prefix_cache": st.booleans(),
            "prefill_chunk_tokens": st.sampled_from([0, 16, 40]),
        }),
        riding=st.booleans(),
    )  # fmt: skip
    def start(self, batch: int, pause: int, window: int, beyond: dict[str, Any], riding: bool) -> None:
        placement = "riding" if riding and beyond["prefill_chunk_tokens"] else "between"
        self.world = World(
            small(
                slots=6, max_batch=batch, prefills_per_pause=pause, window=window, kv_blocks=12,
                input_arena_tokens=256, token_arena_tokens=128, task_pool=3, poll_work_cap=2,
                heartbeat_interval=500_000, watchdog_patience=4_000_000, restart_patience=20_000_000,
                restart_limit=1_000,
                chunk_placement=placement, **beyond,
            )
        )  # fmt: skip
        self.wanted: dict[str, int] = {}
        self.gone: set[str] = set()
        self.down = False
        self.was_down = False
        self.incarnations = [0] * 6
        self.world.wire.mischief.fail = lambda _now, _verb: CompletionStatus.RETRY_EXCEEDED if self.down else None

    @rule(prompt=st.integers(1, 60), answer=st.integers(1, 25), seed=st.integers(0, 3), eos=st.booleans())
    def submit(self, prompt: int, answer: int, seed: int, eos: bool) -> None:
        name = f"r{len(self.wanted)}"
        self.wanted[name] = answer
        self.world.submit(name, "p" * prompt, answer, seed=seed, ignore_eos=not eos)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.wanted)))
        if not self.world.ended(name):
            self.gone.add(name)
        self.world.abandon(name)

    @rule(ms=st.sampled_from([0.001, 0.005, 0.3, 2.0, 7.0, 40.0]))
    def wait(self, ms: float) -> None:
        self.world.run(ms)

    @rule(steps=st.integers(1, 12))
    def single_steps(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @rule(ms=st.sampled_from([0.002, 1.0, 15.0]))
    def lose_the_wire(self, ms: float) -> None:
        self.down = self.was_down = True
        self.world.run(ms)
        self.down = False

    @rule()
    def kill_the_scheduler(self) -> None:
        """As often as it likes: the watchdog finds out where somebody waits, and nobody is told."""
        self.world.kill_scheduler()

    @invariant()
    def words_are_words_and_incarnations_never_go_back(self) -> None:
        if not hasattr(self, "world"):
            return
        for slot in range(6):
            word = self.world.memory.load(self.world.layout.state(slot))
            state_of(word)
            assert incarnation_of(word) >= self.incarnations[slot]
            self.incarnations[slot] = incarnation_of(word)

    @invariant()
    def the_batch_and_the_pool_keep_their_bounds(self) -> None:
        if not hasattr(self, "world"):
            return
        scheduler = self.world.scheduler
        assert len(scheduler.batch) <= self.world.parameters.max_batch
        held = {block for member in scheduler.batch.members for block in member.blocks}
        assert len(held) + scheduler.kv_blocks_free <= 12
        assert scheduler.window.used <= self.world.parameters.window

    @invariant()
    def nobody_gets_more_than_asked_or_anything_after_the_end(self) -> None:
        if not hasattr(self, "world"):
            return
        for name, answer in self.wanted.items():
            messages = [m for m in self.world.answers if getattr(m, "name", None) == name]
            assert len(self.world.tokens(name)) <= answer
            ends = [i for i, m in enumerate(messages) if isinstance(m, Refused) or (isinstance(m, Tokens) and m.reason)]
            assert ends in ([], [len(messages) - 1])

    def teardown(self) -> None:
        """Whatever happened: it settles, everybody was answered, nothing is held."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.settle()
        assert not world.of(DeviceFaulted)
        assert not world.of(LineLogged)
        for name, answer in self.wanted.items():
            messages = [m for m in world.answers if getattr(m, "name", None) == name]
            if name in self.gone:
                continue
            last = messages[-1]
            if isinstance(last, Tokens):
                assert last.reason in ("length", "stop")
                if last.reason == "length":
                    assert len(world.tokens(name)) == answer
            else:
                assert isinstance(last, Refused)
                allowed = {"ring_full", "context_length_exceeded"} | ({"unavailable"} if self.was_down else set())
                assert last.reason in allowed, last
        assert len({event.request for event in world.of(RequestServed)}) == len(world.of(RequestServed))
        assert len(world.of(RequestAbandoned)) <= len(self.gone)
        world.assert_nothing_is_held()


TestServer = Server.TestCase
TestServer.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
