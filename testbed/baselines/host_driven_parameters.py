"""What can be set about a host-driven server, with the source of each default or the reason for our choice.

The shape names a row of fixtures/profiles/host-loops.toml, which has the host's work and its sources; what is set here
in its place is a what-if. "Summary" is papers/blink (arXiv 2604.07609, summarised).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from testbed.serving.architectures import ARCHITECTURES
from testbed.serving.engine_parameters import EngineParameters
from testbed.serving.host_loop import HostLoop, HostLoops, read_host_loops
from testbed.serving.profiles import PROFILES
from testbed.units import MICROSECOND, SECOND, Nanoseconds

Shape = Literal["vllm", "sglang", "tensorrt-llm"]
OVERRIDES = ("overlapped", "serial_us", "visit_ns", "hidden_us", "per_request_us", "per_prefill_us", "launch_us")
"""Parameters that stand in place of the shape's own figures."""


class HostDrivenParameters(EngineParameters, frozen=True, forbid_unknown_fields=True):
    """One server whose control loop runs on the host's CPU."""

    shape: Shape = "vllm"
    """Which published server: what of a step's host work there is, how it is spread over processes, what of it hides
    behind the GPU. All three are in Blink's evaluation (summary)."""
    queue_limit: int = 4_096
    """Requests that are served or wait at the same time; the next one is refused (429). Blink's ring has so many
    slots."""
    completion_patience: Nanoseconds = 60 * SECOND
    """How long the worker waits for a launched graph before it gives up on the device. Our choice: longer than any
    graph here runs; vLLM waits 300 s."""
    orchestration: float | None = None
    """How many times Llama-3 8B's host work a step of this model takes, besides what its tokens cost; None
    takes the profile's."""
    overlapped: bool | None = None
    """Whether the next step is prepared while the GPU runs this one; None takes the shape's."""
    serial_us: float | None = None
    """Host work of a step while the GPU waits; None takes the shape's."""
    visit_ns: float | None = None
    """Host work of one token for each visit to a layer, or to each chosen expert of it; None takes the shape's."""
    hidden_us: float | None = None
    """Host work of a step that hides behind the GPU's step where `overlapped`; None takes the shape's."""
    per_request_us: float | None = None
    """The same, for each sequence of the batch; None takes the shape's."""
    per_prefill_us: float | None = None
    """Host work of taking in one prompt; None takes the shape's."""
    launch_us: float | None = None
    """Launch of a graph from the host. Summary: 11 to 17 us; None takes the shape's."""

    def __post_init__(self) -> None:
        """Refuses what no server could be built from; msgspec reports it with the path."""
        super().__post_init__()
        self.check_positive("queue_limit", "completion_patience")
        told = (name for name in ("orchestration", *OVERRIDES) if getattr(self, name) is not None)
        self.check_not_negative(*told)


class HostCosts(NamedTuple):
    """A server's host work, ready to be asked for: the loop, the model's factor and what a token visits of it."""

    loop: HostLoop
    orchestration: float
    visits: int
    """Of one token: `Architecture.visits`."""

    def prepare_prefill(self) -> Nanoseconds:
        """Work before a prompt's launch, while the GPU waits: input tensors, blocks. Its tokens' is in `take_in`."""
        return self.prepare(0) + round(self.loop.per_prefill_us * MICROSECOND)

    def prepare(self, sequences: int) -> Nanoseconds:
        """Work before a decode step's launch, while the GPU waits: the last tokens, input tensors."""
        serial, _ = self.loop.step_work(0, self.orchestration)
        return serial + sequences * self.loop.token_work(self.visits)

    def update(self, sequences: int) -> Nanoseconds:
        """Work on a step's outcome: batch and block tables, the next step's schedule."""
        return self.loop.step_work(sequences, self.orchestration)[1]

    def launch(self) -> Nanoseconds:
        """The launch itself."""
        return round(self.loop.launch_us * MICROSECOND)

    def take_in(self, tokens: int, *, text: bool) -> Nanoseconds:
        """Work on a prompt before the engine core knows of it, beside the GPU; of a `text` its ids are made first."""
        a_token = self.loop.tokenise_us_per_token * MICROSECOND if text else 0.0
        return round(tokens * a_token) + tokens * self.loop.token_work(self.visits)

    def detokenise(self, tokens: int) -> Nanoseconds:
        """Making text of new tokens."""
        return round(tokens * self.loop.detokenise_us_per_token * MICROSECOND)


def host_costs(parameters: HostDrivenParameters, folder: Path = PROFILES) -> HostCosts:
    """The server's host work (read at construction time, outside machines). Raises `ProfileError`."""
    return costs_among(read_host_loops(folder), parameters)


def costs_among(loops: HostLoops, parameters: HostDrivenParameters) -> HostCosts:
    """The same by loops that have been read."""
    told = {name: getattr(parameters, name) for name in OVERRIDES if getattr(parameters, name) is not None}
    loop = msgspec.structs.replace(loops.loops[parameters.shape], **told)
    model = parameters.model
    factor = loops.orchestration[model] if parameters.orchestration is None else parameters.orchestration
    return HostCosts(loop, factor, ARCHITECTURES[model].visits)
