"""What can be set about a placed server, and what its work costs at each place.

The host's work is that of a host-driven shape (fixtures/profiles/host-loops.toml). A DPU does the same work on slower
cores that nobody else uses; a resident scheduler on the GPU has Blink's published costs in its place.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from testbed.baselines.host_driven_parameters import HostCosts, HostDrivenParameters, Shape, host_costs
from testbed.baselines.placements import (
    POINTS,
    Control,
    Ingress,
    Payload,
    Placement,
    PointName,
    Route,
    Storage,
)
from testbed.serving.host_loop import HostLoop
from testbed.units import MICROSECOND, Nanoseconds


class PlacedParameters(HostDrivenParameters, frozen=True, forbid_unknown_fields=True):
    """A server whose parts may be moved: a named point, and axes that differ from it."""

    point: PointName = "tensorrt-llm"
    """The system whose placement it is (`testbed.baselines.placements.POINTS`)."""
    ingress: Ingress | None = None
    """Who takes requests and streams answers; None: as the point has it."""
    payload: Payload | None = None
    """How prompts and tokens get into and out of GPU memory; None: as the point has it."""
    control: Control | None = None
    """Where each step is decided and launched; None: as the point has it."""
    storage: Storage | None = None
    """Who fetches from storage; None: as the point has it."""
    shape: Shape = "tensorrt-llm"
    """The host loop that is moved about; points that are host-driven servers have their own."""
    dpu_slowdown: float = 2.0
    """Time of a piece of host work on a DPU's core ÷ on the host's. Our estimate: a Cortex-A78 at 2 GHz against an Ice
    Lake core at up to 3.6 GHz."""
    tokeniser: Literal["fastokens", "huggingface"] = "fastokens"
    """Library with which an emulated DPU's process really makes ids of text, as Blink's `tokeniser`."""
    dpu_tokenise_us_per_token: float = 0.1
    """Tokenising on a DPU, which has a tokeniser of its own: as Blink's `tokenise_per_token`."""
    copy_us: float = 20.0
    """Host work of one copy through host memory, prompt or tokens: receive, stage, cudaMemcpyAsync. Our estimate, of
    which the launch of the copy is half. A host-driven loop has it within `per_prefill_us`."""
    scan_us: float = 3.0
    """Of the resident scheduler before each step: Blink's scan of the ring, 1 to 5 us (summary)."""
    device_launch_us: float = 2.0
    """Fire-and-forget launch by the resident scheduler (summary)."""
    wire_launch_us: float = 3.0
    """Launch of a graph from a DPU, without the wire: work request and doorbell. Our estimate; no source has it."""
    prompt_arena_tokens: int = 1 << 20
    """Place for prompts in GPU memory where the NIC writes them; as Blink's input arena."""
    stored_kib: int = 0
    """What each request needs from storage before it can run (images, retrieved texts, KV); 0: nothing."""
    store_us: float = 150.0
    """Work of the object store's client for one request, beside that on its bytes. Our estimate: an HTTP exchange."""
    store_us_per_mib: float = 200.0
    """The same for each MiB: receive and copy at 5 GB/s. Our estimate."""
    store_gbit_per_s: int = 100
    """Rate of the storage network. Our choice."""

    def __post_init__(self) -> None:
        """Refuses what no server could be built from; msgspec reports it with the path."""
        super().__post_init__()
        own = POINTS[self.point].shape
        if own is not None and self.shape not in (own, "tensorrt-llm"):
            raise ValueError(f"point {self.point!r} has the host loop {own!r}, not {self.shape!r}")
        if self.dpu_slowdown < 1:
            raise ValueError(f"dpu_slowdown must be at least 1, not {self.dpu_slowdown:g}")
        self.check_positive("store_gbit_per_s")
        names = ("dpu_tokenise_us_per_token", "copy_us", "scan_us", "device_launch_us", "wire_launch_us", "stored_kib",
                 "store_us", "store_us_per_mib")  # fmt: skip
        self.check_not_negative(*names)
        if self.prompt_arena_tokens < 16 or self.prompt_arena_tokens % 16:
            raise ValueError(f"prompt_arena_tokens must be a positive multiple of 16, not {self.prompt_arena_tokens}")

    def placement(self) -> Placement:
        """Where everything is."""
        told = {axis: given for axis in ("ingress", "payload", "control", "storage")
                if (given := getattr(self, axis)) is not None}  # fmt: skip
        return msgspec.structs.replace(POINTS[self.point].placement, **told)

    def route(self) -> Route:
        """The ways of messages."""
        return self.placement().route(stored=self.stored_kib > 0)

    def loop_shape(self) -> Shape:
        """The host loop that is moved about."""
        return POINTS[self.point].shape or self.shape

    def names(self) -> tuple[PointName, ...]:
        """Published systems with this very placement."""
        return tuple(name for name, point in POINTS.items() if point.placement == self.placement())


class PlacedCosts:
    """What a piece of work takes at each place. Times are true ones on an idle core."""

    def __init__(self, parameters: PlacedParameters) -> None:
        """Reads the host loops (at construction time, outside machines). Raises `ProfileError`."""
        placement = parameters.placement()
        self._placement = placement
        self._slowdown = parameters.dpu_slowdown
        self._parameters = parameters
        told = {name: getattr(parameters, name) for name in HostDrivenParameters.__struct_fields__}
        found = host_costs(HostDrivenParameters(**{**told, "shape": parameters.loop_shape()}))
        self._costs = found
        self._loop = found.loop
        if placement.payload == "direct" and placement.control != "gpu":
            left = max(0.0, found.loop.per_prefill_us - parameters.copy_us)
            self._loop = msgspec.structs.replace(found.loop, per_prefill_us=left)

    def api(self) -> HostCosts:
        """Of ingress."""
        if self._placement.ingress == "host":
            return self._with(self._loop)
        return self._with(
            msgspec.structs.replace(
                self._loop,
                tokenise_us_per_token=self._parameters.dpu_tokenise_us_per_token,
                detokenise_us_per_token=self._loop.detokenise_us_per_token * self._slowdown,
                visit_ns=0.0,  # Blink's DPU does nothing on a prompt's tokens but make them (summary)
            )
        )

    def control(self) -> HostCosts:
        """Of the control loop."""
        match self._placement.control:
            case "host":
                return self._with(self._loop)
            case "dpu":
                names = ("serial_us", "visit_ns", "hidden_us", "per_request_us", "per_prefill_us")
                slower = {name: getattr(self._loop, name) * self._slowdown for name in names}
                loop = msgspec.structs.replace(self._loop, launch_us=self._parameters.wire_launch_us, **slower)
                return self._with(loop)
            case "gpu":
                return HostCosts(self._resident(), 1.0, self._costs.visits)

    def copy(self) -> Nanoseconds:
        """One copy through host memory."""
        return round(self._parameters.copy_us * MICROSECOND)

    def fetch(self) -> Nanoseconds:
        """Work of the object store's client for one request."""
        mib = self._parameters.stored_kib / 1024
        work = (self._parameters.store_us + mib * self._parameters.store_us_per_mib) * MICROSECOND
        return round(work * (self._slowdown if self._placement.storage == "dpu" else 1.0))

    def processes(self) -> tuple[tuple[str, ...], ...]:
        """The shape's machines by process."""
        return self._loop.processes

    def words(self) -> str:
        """The control loop in a line."""
        loop, factor, _ = self.control()
        where = {"host": "host", "dpu": f"DPU, host work × {self._slowdown:g}", "gpu": "GPU, resident"}
        serial, hidden = loop.serial_us * factor, loop.hidden_us * factor
        return (
            f"control on the {where[self._placement.control]}: {serial:g} us of a step while the GPU waits, "
            f"{hidden:g} us {'beside it' if loop.overlapped else 'more'}, launch {loop.launch_us:g} us"
        )

    def _resident(self) -> HostLoop:
        return msgspec.structs.replace(
            self._loop, source="Blink, summary", overlapped=False, serial_us=self._parameters.scan_us, visit_ns=0.0,
            hidden_us=0.0, per_request_us=0.0, per_prefill_us=0.0, launch_us=self._parameters.device_launch_us,
        )  # fmt: skip

    def _with(self, loop: HostLoop) -> HostCosts:
        return self._costs._replace(loop=loop)
