"""The host's process: it provisions the device and leaves the path, or it is the server itself.

`python -m emulators.host --run RUNFOLDER --node NAME`. In Blink's initialisation phase (papers/blink summary) the CPU
loads the model and captures the graphs; in the steady state it has no part. Then it works out what a host would put
into the device (weights, the table of graphs, the KV pool), leaves that for the GPU's software and logs
`host.provisioned`. After the barrier it sleeps, so that it can be stopped (SIGSTOP) while requests stream on.

Where the plan gives the node machines (`NodePlan.processes`), the control loop is the host's: an API process
(`emulators.host_api`) which starts the others, each of them this module with `--process NAME`.
"""

from __future__ import annotations

from emulators.host_api import serve
from emulators.host_process import PROCESS_CODEC, HostProcess
from emulators.http_node import live_with_http
from emulators.node import NodeRun
from emulators.node_life import live_in_turns, live_to_the_end
from emulators.process_links import inherited_links, join_processes
from emulators.provisioning import write_provisions
from testbed.experiment.assembly import provisions_of
from testbed.serving.tokens import deepseek_vocabulary


def live(run: NodeRun) -> None:
    """The host's life, as the plan has it."""
    if not run.node.processes:
        live_in_turns(run, provision)
    elif run.process:
        live_in_turns(run, work)
    else:
        live_with_http(run, serve)


def provision(run: NodeRun) -> None:
    """Provisions before the barrier opens; no machine runs here after it."""
    provisions = provisions_of(run.plan)
    run.emit(provisions)
    run.writer.flush()
    write_provisions(run.folder, run.name, provisions)
    run.attach(())


def work(run: NodeRun) -> None:
    """A process without HTTP: engine core, worker. Its links to the others were made by the one that started it."""
    process = HostProcess(run)
    join_processes(run, process.links, PROCESS_CODEC, inherited_links())
    process.attach(deepseek_vocabulary())
    process.pcie.wait()
    process.wait_until_calibrated()


if __name__ == "__main__":
    raise SystemExit(live_to_the_end(live))
