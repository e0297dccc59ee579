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
    visit_ns: float = 0.0
    """Fitted. Host work of one token for each visit that it makes to a layer or to one of the layer's chosen experts
    (`Architecture.visits`), nanoseconds: of a prompt's tokens before the engine core knows of it, beside the GPU; of
    each sequence's token before a decode step's launch, while the GPU waits."""

    def step_work(self, batch: int, orchestration: float) -> tuple[Nanoseconds, Nanoseconds]:
        """(serial, hidden) work of a step on a model of that orchestration factor; `batch` sequences are in it.

        What their tokens cost besides is `token_work`.
        """
        serial = self.serial_us * orchestration
        hidden = (self.hidden_us + self.per_request_us * batch) * orchestration
        return round(serial * MICROSECOND), round(hidden * MICROSECOND)

    def token_work(self, visits: int) -> Nanoseconds:
        """Work of one token that makes so many visits."""
        return round(self.visit_ns * visits)


class HostLoops(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """fixtures/profiles/host-loops.toml."""

    source: str
    """How the fitted figures were fitted, and the command that does it."""
    loops: dict[str, HostLoop]
    """By name: vllm, sglang, tensorrt-llm."""
    orchestration: dict[str, float]
    """How many times a step's host work is Llama-3 8B's, besides what tokens cost. By name of the model."""
    engine_time: dict[str, float] = {}
    """Fitted, one a model: how many times its step-time table its engine takes in the paper. By name of the model."""
    max_batch: int | None = None
    """Fitted, Blink's: cap of the running batch, which all systems share."""


def read_host_loops(folder: Path = PROFILES) -> HostLoops:
    """Reads the file (at construction time, outside machines). Raises `ProfileError`."""
    return profiles.read(folder / HOST_LOOPS, HostLoops)
