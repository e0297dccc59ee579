"""Systems as the loop of `testbed.serving.iteration` runs them: drivers, limits and tables from their parameters.

One server at the level of iterations has no network; what it and the front end add before a request is ready and
after a token is published is worked out here, once for all requests, from the same parameters.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.baselines.host_driven_parameters import HostCosts, HostDrivenParameters, host_costs
from testbed.blink.parameters import BlinkParameters
from testbed.clocks.pcie import LATENCY
from testbed.serving.graph_cache import PREFILL, GraphCache, GraphGrid, sequences_up_to
from testbed.serving.host_work import Contention
from testbed.serving.iterated_work import QUIET, Disturbance, in_order
from testbed.serving.iteration import NO_END, Driver, Limits, Outcome, StepTables, serve
from testbed.serving.iteration_tables import step_tables
from testbed.serving.profiles import PROFILES
from testbed.serving.provisioning import provision
from testbed.units import MICROSECOND, MILLISECOND, Nanoseconds

Parameters: TypeAlias = BlinkParameters | HostDrivenParameters
Integers = npt.NDArray[np.int64]

FRONT_DELAY: Nanoseconds = 30 * MICROSECOND
"""One way between client and server, as `FrontNetwork.delay_us` has it by default."""
RDMA_WAY: Nanoseconds = 10 * MICROSECOND
"""From a tokenised prompt to a pending slot: write, swap and their round trips on 200 Gbit/s."""
_DRAWS = 100_003
"""Draws of chance before they are used again; a prime, so that they do not fall into step with anything."""


class IteratedSystem(NamedTuple):
    """One system with one model, ready to be asked."""

    tables: StepTables
    limits: Limits
    driver: Driver
    block_tokens: int
    ingress: Nanoseconds
    """From sending to the driver, of any request, besides the work on its prompt."""
    take_in_a_token: Nanoseconds
    """Work on each token of a prompt before the driver knows of it; one prompt after another."""
    take_in_on_host: bool
    """Whether neighbours of the host disturb that work."""
    egress: Nanoseconds
    """From a published token to the client."""

    def serve(
        self,
        sent: Integers,
        prompts: Integers,
        outputs: Integers,
        disturbance: Disturbance = QUIET,
        *,
        until: Nanoseconds = NO_END,
    ) -> Outcome:
        """As `testbed.serving.iteration.serve`, in the client's times: `first`, `last` and `ends` are at the client."""
        order = np.argsort(sent, kind="stable")
        work = self.take_in_a_token * prompts[order]
        ready = np.empty_like(sent)
        ready[order] = in_order(sent[order], work, disturbance if self.take_in_on_host else QUIET) + self.ingress
        blocks = -(-(prompts + outputs) // self.block_tokens)
        found = serve(ready[order], prompts[order], outputs[order], blocks[order], self.tables, self.limits,
                      self.driver, disturbance, until=until)  # fmt: skip
        first, last, joined = (np.empty_like(column) for column in (found.first, found.last, found.joined))
        first[order], last[order], joined[order] = found.first, found.last, found.joined
        late = self.egress
        return found._replace(
            first=np.where(first < 0, first, first + late), last=np.where(last < 0, last, last + late), joined=joined,
            ends=np.where(found.ends < 0, found.ends, found.ends + late),
        )  # fmt: skip


def iterated(
    parameters: Parameters,
    costs: HostCosts | None = None,
    *,
    context: int | None = None,
    folder: Path = PROFILES,
) -> IteratedSystem:
    """The system of these parameters; `costs` in place of the shape's own where it is driven by the host.

    `context` is the longest sequence that graphs are captured for, in place of the model's own.
    """
    tables, limits = _engine(parameters, context, folder)
    if isinstance(parameters, BlinkParameters):
        return _resident(parameters, tables, limits)
    return _host_driven(parameters, costs or host_costs(parameters, folder), tables, limits)


def disturbance(contention: Contention | None, rng: Random) -> Disturbance:
    """Measured contention as the loop's arrays; the draws are made now."""
    if contention is None or contention.threads == 0:
        return QUIET
    return Disturbance(
        contention.slowdown,
        contention.stalls_per_ms / MILLISECOND,
        np.array(contention.stall_ms) * MILLISECOND,
        np.array(contention.wake_ms) * MILLISECOND,
        np.array([rng.random() for _ in range(_DRAWS)]),
    )


def _resident(parameters: BlinkParameters, tables: StepTables, limits: Limits) -> IteratedSystem:
    scan = parameters.scan_cost
    driver = Driver(
        launch=parameters.fire_and_forget_cost,
        look=scan,
        window=parameters.window,
        relaunch=parameters.tail_launch_cost + scan,
        idle_first=scan,
        idle_most=parameters.idle_scan_limit,
    )
    # A poll comes at a moment of its own: half an interval in the mean, and one round trip.
    poll = (parameters.poll_interval_min + parameters.poll_interval_max) // 4
    before = FRONT_DELAY + parameters.burst_window + RDMA_WAY
    return IteratedSystem(tables, limits, driver, parameters.kv_block_tokens, before, parameters.tokenise_per_token,
                          take_in_on_host=False, egress=FRONT_DELAY + poll)  # fmt: skip


def _host_driven(
    parameters: HostDrivenParameters, costs: HostCosts, tables: StepTables, limits: Limits
) -> IteratedSystem:
    loop = costs.loop
    driver = Driver(
        launch=LATENCY,
        look=LATENCY,
        serial=costs.prepare(0) + costs.launch(),
        prefill=costs.prepare_prefill() - costs.prepare(0),
        serial_a_lane=costs.prepare(1) - costs.prepare(0),
        update=costs.update(0),
        update_a_lane=costs.update(1) - costs.update(0),
        deliver_a_lane=costs.detokenise(1),
        overlapped=loop.overlapped,
        one_process=any({"core", "worker"} <= set(process) for process in loop.processes),
    )
    return IteratedSystem(tables, limits, driver, parameters.kv_block_tokens, FRONT_DELAY,
                          costs.take_in(1, text=True), take_in_on_host=True, egress=FRONT_DELAY)  # fmt: skip


@lru_cache(maxsize=64)
def _engine(parameters: Parameters, context: int | None, folder: Path) -> tuple[StepTables, Limits]:
    cost_model = parameters.cost_model(folder)
    graphs = parameters.graphs()
    if context is not None:
        longer = GraphGrid(PREFILL, (1,), sequences_up_to(context))
        graphs = GraphCache(longer, graphs.decode, graphs.bytes_per_graph)
    limits = Limits(parameters.max_batch, parameters.prefills_per_pause, provision(parameters).kv_blocks)
    return step_tables(cost_model, graphs), limits
