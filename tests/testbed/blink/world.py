"""A small real world for Blink's machines: a DPU and a GPU node, and an in-memory wire that can misbehave.

The wire applies each verb to the peer's memory after one latency and completes it after two, in order of posting, as
a reliable connection does. A test may give it `Mischief`: verbs that fail, WRITEs that land torn or late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.blink.control_line import ControlLine
from testbed.blink.device import EmulatedDevice
from testbed.blink.frontend import FrontEnd
from testbed.blink.modelled_steps import times_of
from testbed.blink.parameters import BlinkParameters
from testbed.blink.persistent_scheduler import PersistentScheduler
from testbed.clocks.node_host import NodeHost
from testbed.events.schema import (
    DeviceFaulted,
    GraphSelected,
    TokensPublished,
    TokensSampled,
)
from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    Deliver,
    Event,
    Message,
    Read,
    RemoteAddress,
    Verb,
    Write,
)
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Engine
from testbed.serving.provisioning import provision
from testbed.serving.requests import Abandon, Finish, Refused, Request, Sampling, Submit, Tokens
from testbed.serving.text_model import TextModel
from testbed.serving.tokens import ByteVocabulary, Vocabulary

LATENCY = 1_000
BASE = RemoteAddress(0x1000, 7)
TEXT = "The rain in Spain 🙂 stays mainly in the plain.\nIn Hertford hurricanes hardly ever happen.\n"


def small(**changes: Any) -> BlinkParameters:
    """A small server: 16 slots, a batch of 4."""
    values: dict[str, Any] = {
        "context_tokens": 256, "kv_blocks": 64, "kv_block_tokens": 16, "max_batch": 4, "slots": 16,
        "input_arena_tokens": 2_048, "token_arena_tokens": 2_048, "prefills_per_pause": 2,
    }  # fmt: skip
    return BlinkParameters(**{**values, **changes})


@dataclass
class Mischief:
    """What a test does to a verb: a status to fail it with, a delay before it lands, and how its data lands."""

    fail: Callable[[int, Verb], CompletionStatus | None] = lambda _now, _verb: None
    delay: Callable[[int, Verb], int] = lambda _now, _verb: 0
    spoil: Callable[[int, Write], bytes] = lambda _now, verb: bytes(verb.data)


@dataclass
class TinyWire:
    """Verbs of any node on one region."""

    memory: LocalMemory
    mischief: Mischief = field(default_factory=Mischief)
    posted: list[tuple[int, Verb]] = field(default_factory=list)
    _pending: list[tuple[int, int, str, Verb]] = field(default_factory=list)
    _done: list[tuple[int, int, str, Completion]] = field(default_factory=list)
    _count: int = 0

    def post(self, now: int, node: str, verb: Verb) -> None:
        self.posted.append((now, verb))
        self._count += 1
        lands = now + LATENCY + self.mischief.delay(now, verb)
        self._pending.append((lands, self._count, node, verb))

    def deadline(self) -> int | None:
        moments = [entry[0] for entry in self._pending] + [entry[0] for entry in self._done]
        return min(moments, default=None)

    def wake(self, now: int) -> list[tuple[str, Completion]]:
        for entry in sorted(entry for entry in self._pending if entry[0] <= now):
            self._pending.remove(entry)
            lands, number, node, verb = entry
            self._done.append((lands + LATENCY, number, node, self._apply(lands, verb)))
        ready = sorted((entry for entry in self._done if entry[0] <= now), key=lambda entry: entry[:2])
        self._done = [entry for entry in self._done if entry[0] > now]
        return [(node, completion) for _, _, node, completion in ready]

    def _apply(self, now: int, verb: Verb) -> Completion:
        if status := self.mischief.fail(now, verb):
            return Completion(verb.ticket, status)
        match verb:
            case Write(remote=remote):
                data = self.mischief.spoil(now, verb)
                offset = remote.address - BASE.address
                self.memory.view[offset : offset + len(data)] = data
                return Completion(verb.ticket)
            case Read(remote=remote, length=length):
                offset = remote.address - BASE.address
                return Completion(verb.ticket, data=bytes(self.memory.view[offset : offset + length]))
            case CompareSwap(remote=remote, expected=expected, desired=desired):
                original = self.memory.compare_swap(remote.address - BASE.address, expected, desired)
                return Completion(verb.ticket, original=original)
        raise AssertionError(verb)


class Killed(Exception):
    """The scheduler is no more."""


class MortalMemory:
    """A GPU's own way to its memory that ends the scheduler before its `until`-th store (`LocalMemory`)."""

    def __init__(self, memory: PlainMemory, until: int) -> None:
        self._memory = memory
        self.left = until
        self.size = memory.size
        self.view = memory.view
        self.words = memory.words
        self.load = memory.load

    def store(self, offset: int, value: int) -> None:
        self._live()
        self._memory.store(offset, value)

    def compare_swap(self, offset: int, expected: int, desired: int) -> int:
        self._live()
        return self._memory.compare_swap(offset, expected, desired)

    def fetch_add(self, offset: int, addend: int) -> int:
        self._live()
        return self._memory.fetch_add(offset, addend)

    def _live(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1


class World:
    """One DPU (or more), one GPU, and time that a test advances."""

    def __init__(
        self,
        parameters: BlinkParameters | None = None,
        *,
        vocabulary: Vocabulary | None = None,
        text: str = TEXT,
        front_ends: Sequence[str] = ("dpu0",),
        mischief: Mischief | None = None,
        deaths: Sequence[int] = (),
    ) -> None:
        """`deaths`: the first scheduler dies before its store of that number (from 0), the next before its own, …"""
        self.parameters = parameters or small()
        self.vocabulary = vocabulary or ByteVocabulary()
        self.layout = self.parameters.layout()
        self.memory = PlainMemory(self.layout.size)
        self.wire = TinyWire(self.memory, mischief or Mischief())
        self.now = 0
        self.events: list[tuple[int, str, Event]] = []
        self.answers: list[Message] = []
        self._cost_model = CostModel(read_profile(self.parameters.served_model().profile))
        self._text_model = TextModel(text, self.vocabulary)
        self.front_ends = {
            name: FrontEnd(self.parameters, vocabulary=self.vocabulary, ring=BASE) for name in front_ends
        }
        self.hosts = {name: self._host(name, [machine]) for name, machine in self.front_ends.items()}
        self.owner = ControlLine(self.memory, self.layout)
        """Of the device's memory: looks for questions after every step."""
        self.mortal = True
        """Whether the owner does what it is asked for."""
        self._deaths = list(deaths)
        self.left_behind: list[int] = []
        """Words of the slots when a scheduler last died of `deaths`."""
        self.start_scheduler(self.next_memory())

    def next_memory(self) -> LocalMemory:
        return MortalMemory(self.memory, self._deaths.pop(0)) if self._deaths else self.memory

    def start_scheduler(self, memory: LocalMemory) -> None:
        """A new scheduler and a new device, on the memory as it is; `memory` is how they reach it."""
        self.scheduler = PersistentScheduler(
            self.parameters,
            memory=memory,
            cost_model=self._cost_model,
            kv_blocks=provision(self.parameters).kv_blocks,
            eos=self.vocabulary.eos,
        )
        engine = Engine(self._cost_model, self._text_model, times_of(self.parameters, self._cost_model))
        self.device = EmulatedDevice(self.parameters, memory=memory, engine=engine, starts_at=self.now)
        self.hosts["gpu0"] = self._host("gpu0", [self.scheduler], self.device)

    def kill_scheduler(self) -> None:
        """As kill -9: it is never woken again, and what it had in hand is gone."""
        self.hosts.pop("gpu0", None)

    @property
    def front_end(self) -> FrontEnd:
        return self.front_ends["dpu0"]

    def _host(self, name: str, machines: list[Any], accelerator: Any = None) -> NodeHost:
        return NodeHost(
            name,
            machines,
            post=lambda now, verb: self.wire.post(now, name, verb),
            emit=lambda now, event: self.events.append((now, name, event)),
            outside=lambda _now, deliver: self._answer(deliver),
            accelerator=accelerator,
        )

    def _answer(self, deliver: Deliver) -> None:
        assert deliver.to == "api"
        self.answers.append(deliver.message)

    def submit(
        self,
        name: str,
        prompt: str = "Hello",
        max_tokens: int = 4,
        node: str = "dpu0",
        prompt_ids: tuple[int, ...] = (),
        **sampling: Any,
    ) -> None:
        request = Request(name, prompt, max_tokens, Sampling(**{"seed": 1, **sampling}), prompt_ids=prompt_ids)
        self.hosts[node].deliver(self.now, "front_end", Submit(request))

    def abandon(self, name: str, node: str = "dpu0") -> None:
        self.hosts[node].deliver(self.now, "front_end", Abandon(name))

    def finish(self, name: str, node: str = "dpu0") -> None:
        self.hosts[node].deliver(self.now, "front_end", Finish(name))

    def step(self, until: int | None = None) -> bool:
        """Goes on to the next thing that happens; False if nothing does, or nothing before `until`."""
        moments = [self.wire.deadline(), *(host.deadline() for host in self.hosts.values())]
        due = min((moment for moment in moments if moment is not None), default=None)
        if due is None or (until is not None and due > until):
            return False
        self.now = max(self.now, due)
        for node, completion in self.wire.wake(self.now):
            self.hosts[node].complete(self.now, completion)
        for host in list(self.hosts.values()):
            try:
                host.wake(self.now)
            except Killed:
                self.left_behind = [self.memory.load(self.layout.state(slot)) for slot in range(self.layout.slots)]
                self.kill_scheduler()
        if self.mortal and self.owner.restart_asked():
            self.kill_scheduler()
            self.owner.begin_life()
            self.start_scheduler(self.next_memory())
        return True

    def run(self, milliseconds: float) -> None:
        """Lets time pass."""
        until = self.now + round(milliseconds * 1e6)
        while self.step(until):
            pass
        self.now = until

    def settle(self, names: Sequence[str] | None = None, limit_ms: float = 60_000) -> None:
        """Lets time pass until every request (or those named) has its last message and every slot is empty."""
        until = self.now + round(limit_ms * 1e6)
        while not self._quiet(names):
            assert self.step(until), f"not settled after {limit_ms} ms: {self.open_requests()}"

    def carry(self, loads: Sequence[tuple[str, int, float]], leaves: Collection[int]) -> list[list[int]]:
        """The tokens of each load (prompt, most tokens, ms until the next), but of those that leave by then.

        Nothing is held and the device has not complained at the end.
        """
        for index, (prompt, most, pause_ms) in enumerate(loads):
            self.submit(f"r{index}", prompt, most, seed=index)
            self.run(pause_ms)
            if index in leaves:
                self.abandon(f"r{index}")
        self.settle()
        self.assert_nothing_is_held()
        assert not self.of(DeviceFaulted)
        return [self.tokens(f"r{index}") for index in range(len(loads)) if index not in leaves]

    def _quiet(self, names: Sequence[str] | None) -> bool:
        if names is not None:
            return not self.open_requests() & set(names)
        idle = self.wire.deadline() is None and all(end.deadline() is None for end in self.front_ends.values())
        return idle and not self.open_requests() and not len(self.scheduler.batch)

    def open_requests(self) -> set[str]:
        names = {event.name for _, _, event in self.events if type(event).__name__ == "RequestArrived"}
        return names - {name for name in names if self.ended(name)}

    def ended(self, name: str) -> bool:
        if any(isinstance(m, Refused) and m.name == name for m in self.answers):
            return True
        if any(isinstance(m, Tokens) and m.name == name and m.reason for m in self.answers):
            return True
        number = self.number(name)
        over = {"RequestAbandoned", "RequestServed"}
        return any(type(e).__name__ in over and e.request == number for _, _, e in self.events)

    def number(self, name: str) -> int:
        return next(e.request for _, _, e in self.events if type(e).__name__ == "RequestArrived" and e.name == name)

    def tokens(self, name: str) -> list[int]:
        return [token for m in self.answers if isinstance(m, Tokens) and m.name == name for token in m.tokens]

    def text(self, name: str) -> str:
        return "".join("".join(m.texts) for m in self.answers if isinstance(m, Tokens) and m.name == name)

    def refusal(self, name: str) -> Refused:
        (refused,) = [m for m in self.answers if isinstance(m, Refused) and m.name == name]
        return refused

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for _, _, event in self.events if isinstance(event, kind)]

    def story(self, number: int) -> list[tuple[int, str, Event]]:
        """All events of one request, in order of the log: (t, node, place)."""
        launches = {
            event.launch
            for _, _, event in self.events
            if isinstance(event, GraphSelected | TokensSampled | TokensPublished) and number in event.requests
        }
        mine = [
            entry
            for entry in self.events
            if getattr(entry[2], "request", None) == number or getattr(entry[2], "launch", None) in launches
        ]
        return sorted(mine, key=lambda entry: entry[:2])

    def assert_nothing_is_held(self) -> None:
        """Conservation: what was allocated has come back."""
        for name, front_end in self.front_ends.items():
            assert front_end.holdings.prompts.held == 0, name
            assert front_end.holdings.answers.held == 0, name
            assert front_end.holdings.prompts.free == self.parameters.input_arena_tokens, name
        assert self.scheduler.kv_blocks_free == self.parameters.kv_blocks
        assert len(self.scheduler.batch) == 0
