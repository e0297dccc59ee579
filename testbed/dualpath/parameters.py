"""What can be set about DualPath, with the source of each default or the reason for our choice.

"Paper" is arXiv 2602.21548 as design dualpath has it; [D] is derived there. "Not stated" means that no source has it.
True bytes and true nanoseconds. The systems that it is compared with are values of these parameters
(`testbed.baselines.parameters`), so a difference between two runs is a difference in this file.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from testbed.network.host_design import Copies, HostDesign
from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.units import GBYTE_PER_S, MICROSECOND, MILLISECOND, SECOND, Nanoseconds

Few = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Duration = Annotated[Nanoseconds, msgspec.Meta(ge=0, le=3600 * SECOND)]


class DualPathParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One prefill/decode-disaggregated server with external KV storage."""

    # --- the machines -------------------------------------------------------------------------------------------
    model: str = "ds-27b"
    """Row of `testbed.serving.agentic_models.AGENTIC_MODELS`: ds-27b, ds-660b or qwen-2.5-32b."""
    layers: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    """Layers of the model; None takes its own. Fewer make blocks of fewer, larger parts at the same KV bytes a token
    and the same compute: coarser steps for a small emulation, said in the notes."""
    prefill_nodes: Few = 1
    """P. Paper, 1.11: 1 for DS 27B, 2 for DS 660B."""
    decode_nodes: Few = 1
    """D."""
    engines_per_node: Annotated[int, msgspec.Meta(ge=1, le=16)] = 8
    """g: GPUs of a node, each with a CNIC of its own. Paper: 8."""
    storage_nics: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    """s: SNICs of a node. Paper: 1."""
    storage_nodes: Few = 2
    """3FS-like storage nodes, each with one port. Not stated (3FS "can saturate 400 Gbps"); our choice: two saturate
    one SNIC of either side."""
    hbm_kv_bytes: Annotated[int, msgspec.Meta(ge=1, le=10**12)] = 20_000_000_000
    """HBM of one engine for KV. Not stated; our choice."""
    prefill_hbm_kv_bytes: Annotated[int, msgspec.Meta(ge=1, le=10**12)] | None = None
    """The same of a prefill engine alone; None: as much. Not stated; theirs has weights and activations of other sizes,
    and layerwise prefill matters only where it is short."""
    prefill_buffer_bytes: Annotated[int, msgspec.Meta(ge=1, le=10**13)] = 80_000_000_000
    """DRAM of a prefill node's PE buffer. Paper, A.4: 80 GB a node (DS), 320 GB (Qwen)."""
    decode_buffer_bytes: Annotated[int, msgspec.Meta(ge=1, le=10**13)] = 80_000_000_000
    """DRAM of a decode node's DE buffer. Paper, A.4: as above."""
    pcie_gbyte_s: Annotated[float, msgspec.Meta(ge=0)] = 50.0
    """B: each way of a CNIC's PCIe link, GB/s, in the simulated model; 0 leaves it out. Paper, 1.7: equal to the
    CNIC's 400 Gbit/s. An emulation has the wire's rate alone."""
    dram_gbyte_s: Annotated[float, msgspec.Meta(ge=0)] = 500.0
    """M: DRAM of a node, reads and writes together, GB/s, in the simulated model; 0 leaves it out. Paper, 1.7."""

    # --- blocks and storage -------------------------------------------------------------------------------------
    block_tokens: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    """Tokens of a Full Block. Paper: "e.g. 64 tokens"."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=8)] = 2
    """Length of a chunk's chain, at most the number of storage nodes. Not stated; 3FS runs two or three."""
    disk_gbyte_s: Annotated[float, msgspec.Meta(ge=0.001)] = 60.0
    """Of a storage node's disks together, GB/s, as the simulated clock models them; an emulation has real files. Not
    stated; our choice: above its port's 50 GB/s, since 3FS "can saturate" its NICs."""
    disk_latency: Duration = 100 * MICROSECOND
    """Of each chunk, in the same model. Not stated; our choice: an NVMe drive's read."""
    storage_image_mib: Annotated[int, msgspec.Meta(ge=16, le=1 << 20)] = 512
    """Of each storage node's file system in an emulation, MiB as they are on this host: an image of a block takes one
    block of 4 KiB more than its own. A node that is full takes no more blocks, which then count as missed."""
    persist: bool = True
    """Every full block of new KV is written to storage at once (paper, 1.6)."""

    # --- placement and path -------------------------------------------------------------------------------------
    read_path: Literal["prefill", "decode", "round_robin", "shorter_queue", "split", "bypass"] = "shorter_queue"
    """Who reads hit KV. Paper: the side whose node read queue is shorter. `prefill` is Basic, `round_robin` the
    ablation's step, `split` beyond the paper (shares by queue), `bypass` Oracle (no reads, copies and transfers)."""
    path_tie: Literal["prefill", "decode", "alternate"] = "alternate"
    """Which side when both queues are equal. Not stated; our choice."""
    path_hysteresis_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The other side's queue must be shorter by more than this to leave the side of the node pair's last turn. Ours;
    0 is the paper's rule."""
    placement: Literal["scheduled", "round_robin", "affinity"] = "scheduled"
    """Of engines: the paper's rules (1.2, 1.3), each engine in turn (the ablation before scheduling), or the node that
    holds most of the prompt in its DRAM (Mooncake; needs `dram_pool_bytes`)."""
    alpha_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Disk-reading queue from which a node's engines are of class 3. None: what its SNICs read in 3 s (A.4)."""
    beta_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Tokens from which a prefill engine is overloaded. None: what one engine computes in 5 s (A.4)."""
    z_percent: Annotated[int, msgspec.Meta(ge=100, le=1000)] = 105
    """Z, as percent of the mean tokens of a decode group. Paper: 1.05."""
    reads_counted_at: Literal["assignment", "fetch"] = "assignment"
    """Whether `read_q` grows at once when a turn is assigned, or only by what nodes report. Not stated; our choice,
    since a burst of assignments would else all see the same queue."""
    placement_ties: Literal["rotate", "lowest"] = "rotate"
    """Which of equal engines or groups is taken: the next after the last one taken, nodes in turn, or the first. Not
    stated; our choice, since idle engines are equal and a lone agent would read over the same two SNICs for ever."""
    prefill_group_nodes: Few | None = None
    """Prefill nodes whose engines fetch together; None: all. Not stated ("all engines of one node are in one group");
    our choice: one group, since classes 2 and 3 go by the node and could not differ within a group of one."""
    decode_group_nodes: Few | None = 1
    """As above for decode nodes. Not stated; our choice: the node, as phase 1 of the rule spreads over groups."""
    fetch_period: Annotated[Nanoseconds, msgspec.Meta(ge=10 * MICROSECOND, le=3600 * SECOND)] = 10 * MILLISECOND
    """How often leader engines fetch when nothing else makes them. Not stated; our choice. Below 10 us, a few times
    what a letter takes, one fetch would follow the other without a pause."""
    unstored_context: Literal["wait", "compute"] = "wait"
    """What becomes of a turn whose context is still on its way to storage: it waits until its agent's last turn has
    persisted all, or computes those blocks again. Not stated; our choice, since the paper's hit length is the
    context's, computed by the client (A.3), and does not depend on how fast a write is."""
    hbm_counted_at: Literal["assignment", "report"] = "report"
    """Whether a turn's KV counts against a decode engine's free HBM only once the engine has it and reports so, or from
    its assignment on. Paper: a decode engine allocates HBM when decode starts, and the DE buffer saves it until then
    (1.6); that is nothing where it counts from assignment on, and "risk of HBM exhaustion" (1.3) could not be."""
    lost_after_periods: Annotated[int, msgspec.Meta(ge=2)] = 500
    """Fetch periods without a fetch after which a node counts as lost. The paper has no failures; our choice."""
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    """How often a turn is placed, at most, when its engines fail. Ours, as above."""
    max_sequences: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Most sequences of one engine. Not stated; our choice."""

    # --- inside a prefill engine --------------------------------------------------------------------------------
    layerwise: bool = True
    """Prefill holds the KV of one layer at a time (LayerKV, PrefillOnly). False: all layers of the whole batch."""
    layers_ahead: Annotated[int, msgspec.Meta(ge=0, le=8)] = 1
    """Layers whose KV is fetched while one is computed. Not stated; our choice: double buffering."""
    quota: Duration | None = 300 * MILLISECOND
    """Attention time of one batch, summed over layers (1.5; "summed" is unstated and our reading). None: no quota."""
    chunk_tokens: Annotated[int, msgspec.Meta(ge=1)] = 64
    """A chunk is a multiple of this, and at least this. Not stated; our choice: the block."""
    batch_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8_192
    """Most tokens computed in one batch; the activations' limit. Not stated; our choice."""
    compute_scale: Annotated[float, msgspec.Meta(ge=1e-6, le=1000)] = 1.0
    """All modelled compute times are multiplied by this: more makes a system compute-bound, for the experiments where
    the gain must vanish."""

    # --- moving KV ----------------------------------------------------------------------------------------------
    copy: Copies = "cnic"
    """Host-device copies: RDMA WRITE by CNIC loop-back (paper), the GPU's copy engine, which no lane isolates, or
    `nic_integrated`, an engine on the NIC that crosses PCIe once, in the NIC's lanes (what-if of the paper's hardware
    section). What differs on the PCIe link is in the simulated model alone."""
    submit_time: Duration = 1 * MICROSECOND
    """To post one RDMA WRITE without batching. Paper, A.1: about 1 us."""
    copy_engine_time: Duration = 6 * MICROSECOND
    """To submit one cudaMemcpyAsync. Paper, A.1: 5-7 us."""
    integrated_submit_time: Duration = 200
    """To submit a copy to an engine on the NIC itself. A what-if, so no source; our choice: a fifth of an RDMA WRITE's,
    a descriptor without a queue pair."""
    pcie_qos: bool = False
    """PCIe with traffic classes: copies by the copy engine go in the lane of KV there and give way to collectives.
    What-if of the paper's hardware section; today's GPUs have none (A.1). Simulated model only."""
    doorbell_batch: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    """WRITEs that share one doorbell, and one `submit_time`. Paper: "doorbell batching amortises"; size ours."""
    decode_landing: Literal["buffer", "hbm"] = "buffer"
    """Where KV waits for decode: the DE buffer (paper, 1.6), or straight in HBM."""
    collectives: Literal["none", "node", "role"] = "none"
    """Who exchanges tokens for experts, layer by layer over the CNICs: nobody, the engines of a node, or all engines
    of a role. Engines that exchange take their forward steps together (1.5). Paper: EP + DP for DS."""
    tensor_parallel: bool = False
    """The engines of a node compute each layer together, with ReduceScatter and AllGather (SGL(MC)'s TP = 8)."""

    # --- other ways to keep or fetch KV (testbed.baselines) -------------------------------------------------------
    dram_pool_bytes: Annotated[int, msgspec.Meta(ge=0, le=10**13)] = 0
    """DRAM of each node for a distributed KV pool in front of storage; 0: none (paper: DualPath has none, Mooncake
    1.5 TB a node)."""
    dram_pool_squeeze_bytes: Annotated[int, msgspec.Meta(ge=0, le=10**13)] = 0
    """What optimizer state takes of it (RL training, 1.14)."""
    cxl: Literal["none", "buffers", "pool"] = "none"
    """What lies in memory behind CXL instead of DRAM: the PE and DE buffers, or the KV pool (`dram_pool_bytes`), then a
    tier between storage and the buffers in DRAM. What-if of the paper's hardware section; simulated model only."""
    cxl_gbyte_s: Annotated[float, msgspec.Meta(ge=0.001)] = 64.0
    """CXL memory of a node, reads and writes together, GB/s. Our choice: one link of 16 lanes at 32 GT/s (CXL 2.0 on
    PCIe 5.0) has 64 GB/s each way; that both ways share it is on the slow side, as a device of two DDR5 channels is."""
    cxl_latency: Annotated[Nanoseconds, msgspec.Meta(ge=0, le=SECOND)] = 200
    """By which each transfer out of or into CXL memory comes later. Our choice, the order of one load; a transfer of
    many KB does not wait for each of its lines."""
    affinity_slack_tokens: Annotated[int, msgspec.Meta(ge=0)] = 8_192
    """How far behind the others, in tokens, the engine with the longest prefix may be and is still taken. Ours."""
    fetch_percent: Annotated[int, msgspec.Meta(ge=1, le=100)] = 100
    """Share of a hit's KV bytes that is fetched; the rest is restored by compute (HCache-like: 50)."""
    retrieval_overhead: Duration = 0
    """Added to each storage read of a turn before its first byte: software of the storage path (Basic's file stack
    against TARDIS- or Phoenix-like GPU-centric ones)."""

    def __post_init__(self) -> None:
        """Refuses a model that there is not; msgspec reports it with the path."""
        if self.model not in AGENTIC_MODELS:
            raise ValueError(f"model {self.model!r} is none of {', '.join(sorted(AGENTIC_MODELS))}")

    @property
    def prefill_hbm(self) -> int:
        """HBM of one prefill engine for KV, in bytes."""
        return self.hbm_kv_bytes if self.prefill_hbm_kv_bytes is None else self.prefill_hbm_kv_bytes

    def check_copies(self) -> None:
        """Raises ValueError for ways of copies that change nothing together."""
        if self.pcie_qos and self.copy != "copy_engine":
            raise ValueError(
                f"pcie_qos is for copies by the GPU's copy engine, and copy is {self.copy}: "
                "the NIC's lanes arbitrate all of its PCIe link already"
            )
        if self.copy != "cnic" and not self.pcie_gbyte_s:
            raise ValueError(f"copy is {self.copy}, which needs the PCIe link, and pcie_gbyte_s is 0")

    def host_design(self, in_cxl: tuple[str, ...] = ()) -> HostDesign:
        """An engine node's inside; `in_cxl` are its regions in CXL memory."""
        return HostDesign(
            copies=self.copy,
            pcie_classes=self.pcie_qos,
            cxl_bits_per_s=round(self.cxl_gbyte_s * GBYTE_PER_S) if in_cxl else 0,
            cxl_latency=self.cxl_latency if in_cxl else 0,
            in_cxl=in_cxl,
        )

    @property
    def steps_together(self) -> bool:
        """Whether the engines of a group take their forward steps together (`testbed.dualpath.rounds`)."""
        return self.collectives != "none" or self.tensor_parallel
