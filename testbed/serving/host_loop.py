"""The host's part of a decode step, as published servers have it: how much, what of it hides behind the GPU, whose.

Every system here shares policy, KV pool, cost model and sampler (`testbed.serving`); a host loop says what it costs to
have them on the host's CPU. The two fitted figures of a loop, and the one of a model, come from
fixtures/profiles/host-loops.toml, which says how they were fitted; the rest is published, counted or chosen, each with
its source there. It knows no machine and no clock.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from testbed.serving import profiles
from testbed.serving.models import Model
from testbed.serving.profiles import PROFILES
from testbed.units import MICROSECOND, Nanoseconds

HOST_LOOPS = "host-loops.toml"


class HostLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One server's host work; times are true microseconds on an idle core."""

    source: str
    """Where shape and figures come from."""
    processes: tuple[tuple[str, ...], ...]
    """Machines by operating-system process: api, core, worker."""
    overlapped: bool
    """Whether the next step is prepared while the GPU runs this one (asynchronous or overlapped scheduling)."""
    serial_us: float
    """Fitted. Host work of a step while the GPU waits for it: from the tokens' arrival to the next launch."""
    hidden_us: float
    """Host work of a step that is done beside the GPU's step where `overlapped`, and while the GPU waits where not;
    what does not fit behind the step makes the GPU wait. Chosen: while it fits, it moves no figure to be fitted to."""
    per_request_us: float
    """Of each sequence in the batch, in each step."""
    per_prefill_us: float
    """Of taking in one prompt: admission, blocks, input tensors."""
    launch_us: float
    """Launch of a graph from the host. Blink summary: 11 to 17 us."""
    tokenise_us_per_token: float
    detokenise_us_per_token: float
    experts: float = 1.0
    """Fitted. How many times a step's host work is that of a dense model's where the model has experts."""

    def step_work(self, batch: int, orchestration: float) -> tuple[Nanoseconds, Nanoseconds]:
        """(serial, hidden) work of one decode step for `batch` sequences on a model of that orchestration factor."""
        serial = self.serial_us * orchestration
        hidden = (self.hidden_us + self.per_request_us * batch) * orchestration
        return round(serial * MICROSECOND), round(hidden * MICROSECOND)


class HostLoops(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """fixtures/profiles/host-loops.toml."""

    source: str
    """How the fitted figures were fitted, and the command that does it."""
    loops: dict[str, HostLoop]
    """By name: vllm, sglang, tensorrt-llm."""
    orchestration: dict[str, float]
    """How many times a step's host work is Llama-3 8B's, besides `HostLoop.experts`. By name of the model."""
    engine_time: dict[str, float] = {}
    """Fitted, one a model: how many times its step-time table its engine takes in the paper. By name of the model."""
    max_batch: int | None = None
    """Fitted, Blink's: cap of the running batch, which all systems share."""

    def factor(self, loop: str, model: Model) -> float:
        """How many times a step's host work of `loop` is with `model`. Raises KeyError."""
        return self.orchestration[model.name] * (self.loops[loop].experts if model.experts else 1.0)


def read_host_loops(folder: Path = PROFILES) -> HostLoops:
    """Reads the file (at construction time, outside machines). Raises `ProfileError`."""
    return profiles.read(folder / HOST_LOOPS, HostLoops)
