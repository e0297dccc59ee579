"""What can be set about Blink, with the source of each default or the reason for our choice.

"Summary" is papers/blink (arXiv 2604.07609, summarised); "not stated" means that no source has the number. Times are
true nanoseconds of the modelled hardware. The engine's own are `testbed.serving.engine_parameters`.
"""

from __future__ import annotations

from typing import Literal

from testbed.blink.collectives import TensorParallel
from testbed.blink.expert_offload import ExpertOffload
from testbed.blink.launches import LaunchMode
from testbed.blink.ring import ANSWER_HEADER, RingLayout
from testbed.blink.speculation import Speculation
from testbed.serving.architectures import ARCHITECTURES
from testbed.serving.engine_parameters import EngineParameters
from testbed.serving.graph_cache import (
    CHUNK,
    DECODE,
    MIXED,
    PREFILL,
    ChunkGrids,
    GraphCache,
    GraphGrid,
    decode_batches,
    sequences_by_doubling,
    sequences_up_to,
)
from testbed.units import MICROSECOND, MILLISECOND, SECOND, Nanoseconds


class BlinkParameters(EngineParameters, frozen=True, forbid_unknown_fields=True):
    """One Blink server: a DPU with the front end, a GPU with ring and resident scheduler."""

    gpus: int = 1
    """GPUs behind the front end, each with a ring and a resident scheduler of its own and the whole model. Summary,
    limits: Blink has one."""
    gpu_choice: Literal["fewest_requests", "round_robin"] = "fewest_requests"
    """How the front end chooses the GPU of a request: the one with the fewest open ones, or each in turn."""
    graph_token_budget: int | None = None
    """Decode graphs are captured up to so many tokens (batch x sequence); a larger shape takes the largest graph, the
    fall-back of the summary. None captures the whole grid. Which shapes Blink leaves out is not stated."""
    prefill_chunk_tokens: int = 0
    """Most tokens of prompts that are computed before the batch has its next decode step; longer prompts are cut.
    0 computes prompts whole, as Blink does (summary, limits: no chunked prefill); Sarathi-Serve takes 512 to 2,048."""
    prefix_cache: bool = False
    """Whether KV blocks of earlier prompts are kept and shared: a tree over the pool, the longest idle make room.
    False, as in Blink (summary, limits: no prefix cache)."""
    chunk_placement: Literal["between", "riding"] = "between"
    """Where a chunk is computed: in a pause of the batch, or beside its decode step in one graph."""

    speculation: Speculation | None = None
    """Speculative decoding, as a model (simulated only). None, as in Blink (summary, limits)."""
    tensor_parallel: TensorParallel | None = None
    """The model over several GPUs, as a model (simulated only). None: one GPU, as in Blink."""
    expert_offload: ExpertOffload | None = None
    """Experts beyond HBM, as a model (simulated only). None: all in HBM, as in Blink (summary, limits)."""

    slots: int = 4_096
    """Slots of the ring. Summary, parallel slot scan."""
    input_arena_tokens: int = 4_194_304
    """Token ids that waiting prompts may occupy. Not stated; our choice: all slots with ShareGPT's mean prompt
    (1,019 tokens)."""
    token_arena_tokens: int = 2_097_152
    """Token ids that answers may occupy. Not stated; our choice: all slots with 512 tokens (ShareGPT's mean answer
    is 463)."""

    burst_window: Nanoseconds = 2 * MICROSECOND
    """How long the front end gathers prompts before it writes them together. Not stated; our choice: less than one
    RDMA round trip."""
    burst_prompts: int = 64
    """Most prompts in one burst. Not stated; our choice: 64 mean prompts are 256 KiB."""
    coalesce_gap_bytes: int = 256
    """Token reads whose addresses are at most this far apart become one RDMA READ. Not stated; our choice: 256 bytes
    take 10 ns at 200 Gbit/s, less than an operation of their own."""
    task_pool: int = 1_024
    """RDMA operations in flight before the front end queues them itself ("a large RDMA task pool", summary); size
    not stated; our choice."""
    submit_attempts: int = 8
    """Slots tried for one prompt when another front end is quicker. Our choice."""
    tokeniser: Literal["fastokens", "huggingface"] = "fastokens"
    """Library with which the emulated DPU's process really makes ids of text; the ids are the same. fastokens: flat
    tables, a fixed handful of allocations a request, as the paper's tokeniser has none; huggingface: what vLLM and
    SGLang have. Measured beside each other by `looplane bench tokenizer`. No part in a simulation's time."""
    tokenise_per_token: Nanoseconds = 100
    """Modelled time of the tokeniser on the DPU. Absolute times are not stated: about 1 us a token for HuggingFace's,
    divided by the summary's 8 to 19.7 times."""
    tracker_refresh_interval: Nanoseconds = 1 * MILLISECOND
    """Age at which the slot tracker's cache is read again before a slot is sought. Not stated; our choice."""
    poll_interval_min: Nanoseconds = 200 * MICROSECOND
    """Shortest time between two metadata reads. Not stated; our choice: 3 % of the shortest step of Llama-3 8B, and
    64 KiB every 200 us are 2.6 Gbit/s of 200."""
    poll_interval_max: Nanoseconds = 800 * MICROSECOND
    """Longest time between two metadata reads while requests are served. Not stated; our choice: a tenth of a decode
    step of Llama-3 8B."""
    poll_outage_interval: Nanoseconds = 100 * MILLISECOND
    """Longest time between two metadata reads while the GPU does not answer. Our choice."""
    poll_work_cap: int = 256
    """Most requests whose tokens one polling cycle fetches ("limits the work of a cycle", summary); not stated; our
    choice."""
    measure_interval: Nanoseconds = 100 * MILLISECOND
    """Between two `reader.measured` events. Our choice."""
    service_level: int = 0
    """InfiniBand service level of the front end's operations."""

    scan_cost: Nanoseconds = 3 * MICROSECOND
    """One parallel scan of all slots. Summary: 1 to 5 us for 4,096 slots."""
    idle_scan_limit: Nanoseconds = 200 * MICROSECOND
    """An idle scheduler doubles its scan interval up to this. Our choice: the real one scans without a break, which
    no emulator can; it delays a first token by 0.1 ms in the mean, and the shortest prefill takes 6 ms."""
    completion_poll: Nanoseconds = 50 * MICROSECOND
    """Between two looks at the extraction buffer once a graph is overdue. Our choice; see `idle_scan_limit`."""
    completion_patience: Nanoseconds = 10 * SECOND
    """How long a graph may be overdue before the scheduler gives up on the device. Our choice: no poll for ever."""
    window: int = 120
    """Fire-and-forget launches of one parent execution. CUDA Programming Guide, device graph launch: at most 120."""
    fire_and_forget_cost: Nanoseconds = 2_000
    """Launch of a graph from the device. Summary: about 2 us."""
    tail_launch_cost: Nanoseconds = 5_500
    """Tail launch of the scheduler's own graph. Summary: about 5.5 us."""
    launch_mode: LaunchMode = "fire_and_forget"
    """How a step's graph is launched. Summary: Blink fires and forgets; `tail` enqueues each graph behind the
    scheduler's own execution, `host` lets a thread of the host launch it (its time alone is modelled: no host node
    takes part)."""
    host_launch_cost: Nanoseconds = 14_000
    """Launch of a graph by the host. Summary: 11 to 17 us, by the graph's topology; the middle."""

    heartbeat_interval: Nanoseconds = 10 * MILLISECOND
    """Between two heartbeats of the scheduler. The paper has no recovery; our choice: the kernel that spins could
    count at every scan, an emulated one is woken for it."""
    watchdog_patience: Nanoseconds = 200 * MILLISECOND
    """How long a scheduler from which something is awaited may give no sign of life before the front end asks for a
    new one; 0 leaves it alone. Our choice: twenty heartbeats, so that a process of an emulation that is late is not
    taken for dead."""
    restart_patience: Nanoseconds = 2 * SECOND
    """How long a new scheduler may take to its first heartbeat before it is asked for again. Our choice."""
    restart_limit: int = 8
    """Most new lives that a front end asks for within `restart_window`; then it refuses requests until a heartbeat
    moves. Our choice."""
    restart_window: Nanoseconds = 60 * SECOND
    """See `restart_limit`. Our choice."""
    restart_cost: Nanoseconds = 5 * MILLISECOND
    """From the question for a new scheduler to its start, under the simulated clock; an emulation takes what it takes.
    Our choice: what a process that stands ready needs to see it and to launch the scheduler's graph."""
    restored_kv: Literal["recomputed", "kept"] = "recomputed"
    """What a new scheduler does about answers under way: `recomputed` prefills prompt and answer again and believes
    nothing without checksum or order of writes; `kept` believes the KV blocks and block tables that lie in HBM."""

    def __post_init__(self) -> None:
        """Refuses what no server could be built from; msgspec reports it with the path."""
        super().__post_init__()
        self.check_positive(*_POSITIVE)
        self.check_not_negative(*_NOT_NEGATIVE)
        if not self.poll_interval_min <= self.poll_interval_max <= self.poll_outage_interval:
            raise ValueError("poll_interval_min, poll_interval_max and poll_outage_interval must ascend")
        if self.max_batch > self.slots:
            raise ValueError(f"max_batch {self.max_batch} is more than the ring's {self.slots} slots")
        if self.expert_offload is not None and not ARCHITECTURES[self.model].experts:
            raise ValueError(f"expert_offload: {self.model} has no experts")
        if self.speculation is not None and (self.max_batch + 1) * self.lane_words > self.slots:
            words = f"a batch of {self.max_batch} with {self.lane_words} tokens a step"
            raise ValueError(f"speculation: {words} is more than the extraction buffer's {self.slots} words")
        if self.graph_token_budget is not None and self.graph_token_budget < 1:
            raise ValueError(f"graph_token_budget must be at least 1, not {self.graph_token_budget}")
        if self.gpus > MOST_GPUS:
            raise ValueError(f"gpus must be 1 to {MOST_GPUS}, not {self.gpus}")
        if self.service_level > 15:
            raise ValueError(f"service_level must be 0 to 15, not {self.service_level}")
        if self.window < 2:
            raise ValueError("window must be at least 2: one prefill and one decode")
        if self.watchdog_patience and self.watchdog_patience < 4 * self.heartbeat_interval:
            raise ValueError("watchdog_patience must be 0 or at least four times heartbeat_interval")
        self.layout()

        if self.prefill_chunk_tokens and not SHORTEST_CHUNK <= self.prefill_chunk_tokens <= self.context():
            allowed = f"0 or {SHORTEST_CHUNK} to {self.context()}"
            raise ValueError(f"prefill_chunk_tokens must be {allowed}, not {self.prefill_chunk_tokens}")
        if self.chunk_placement == "riding" and not self.prefill_chunk_tokens:
            raise ValueError("chunk_placement riding needs prefill_chunk_tokens")

    def layout(self) -> RingLayout:
        """Where everything lies in the region "ring"; its `size` is the region's size."""
        return RingLayout(self.slots, self.input_arena_tokens, self.token_arena_tokens)

    @property
    def lane_words(self) -> int:
        """Words of the extraction buffer that a lane has: as many as a step may draw tokens for it."""
        return 1 if self.speculation is None else 1 + self.speculation.draft_tokens

    def weights_bytes(self) -> int:
        """Bytes of weights in one GPU's HBM."""
        size = super().weights_bytes()
        if self.expert_offload is not None:
            size -= self.expert_offload.absent_bytes(ARCHITECTURES[self.model])
        return size if self.tensor_parallel is None else size // self.tensor_parallel.gpus

    def kv_bytes_per_token(self) -> int:
        """Bytes of KV that a token has in one GPU's HBM."""
        size = super().kv_bytes_per_token()
        return size if self.tensor_parallel is None else size // self.tensor_parallel.gpus

    @property
    def answer_header(self) -> int:
        """Words in front of each answer in the token arena (`testbed.blink.ring.ANSWER_HEADER`)."""
        return ANSWER_HEADER if self.prefix_cache else 0

    def launch_cost(self, mode: LaunchMode) -> Nanoseconds:
        """What one launch of a graph takes."""
        if mode == "host":
            return self.host_launch_cost
        return self.tail_launch_cost if mode == "tail" else self.fire_and_forget_cost

    def graphs(self) -> GraphCache:
        """The graphs that the host captures: one sequence a prefill, a dense grid for decode steps.

        Chunks have graphs of their own: in steps of 64 tokens for themselves, and two lengths beside decode steps;
        what follows a found prefix is a chunk as well, of any length where prompts are not cut.
        """
        sequences, budget = sequences_up_to(self.context()), self.prefill_chunk_tokens
        coarse, batches = sequences_by_doubling(self.context()), decode_batches(self.max_batch)
        riding = self.chunk_placement == "riding"
        lengths = (*range(64, budget, 64), budget) if budget else sequences if self.prefix_cache else ()
        return GraphCache(
            GraphGrid(PREFILL, (1,), sequences),
            GraphGrid(DECODE, batches, sequences, self.graph_token_budget),
            self.graph_bytes,
            chunk=ChunkGrids(CHUNK, lengths, (1,), coarse) if lengths else None,
            mixed=ChunkGrids(MIXED, (-(-budget // 2), budget), batches, coarse) if riding else None,
        )


MOST_GPUS = 8
"""GPUs of one front end; our choice: as many as a server has."""
SHORTEST_CHUNK = 16
"""Least budget of tokens for chunks."""
_POSITIVE = (
    "gpus", "slots", "burst_prompts", "task_pool",
    "submit_attempts", "tracker_refresh_interval", "poll_interval_min", "poll_work_cap", "measure_interval",
    "scan_cost", "completion_poll", "completion_patience", "heartbeat_interval", "restart_patience",
    "restart_limit", "restart_window",
)  # fmt: skip
_NOT_NEGATIVE = (
    "burst_window", "coalesce_gap_bytes", "tokenise_per_token", "service_level",
    "fire_and_forget_cost", "tail_launch_cost", "host_launch_cost", "idle_scan_limit", "restart_cost",
    "prefill_chunk_tokens", "watchdog_patience",
)  # fmt: skip
