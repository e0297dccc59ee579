"""The host's process: provisions the device, says so, and leaves the path.

`python -m emulators.host --run RUNFOLDER --node NAME`. Blink's initialisation phase (papers/blink summary): the CPU
loads the model and captures the graphs; in the steady state it has no part. Here it works out what a host would put
into the device (weights, the table of graphs, the KV pool), leaves that for the GPU's software and logs
`host.provisioned`. After the barrier it sleeps, so that it can be stopped (SIGSTOP) while requests stream on.
"""

from __future__ import annotations

from emulators.node import NodeRun, run_node
from emulators.provisioning import write_provisions
from testbed.experiment.assembly import provisions_of


def build(run: NodeRun) -> None:
    """Provisions before the barrier opens; no machine runs here after it."""
    provisions = provisions_of(run.plan)
    run.emit(provisions)
    run.writer.flush()
    write_provisions(run.folder, run.name, provisions)
    run.attach(())


if __name__ == "__main__":
    raise SystemExit(run_node(build))
