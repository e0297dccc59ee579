"""What the host does before requests are served: weights, graphs and the KV pool, worked out from the parameters.

Blink's initialisation phase (summary): the CPU loads the model, captures the graphs and is out of the steady state;
every other server here does the same and stays. Nothing here is asked again once requests are served.
"""

from __future__ import annotations

from testbed.events.run_events import HostProvisioned
from testbed.serving.engine_parameters import EngineParameters


class DoesNotFit(ValueError):
    """The model leaves no HBM for a KV pool."""

    def __init__(self, model: str, needed: int, hbm: int) -> None:
        self.model = model
        self.needed = needed
        self.hbm = hbm
        super().__init__(f"{model} needs {needed:,} bytes of HBM before the first KV block; there are {hbm:,}")


def provision(parameters: EngineParameters) -> HostProvisioned:
    """The facts of `host.provisioned`. Raises `DoesNotFit` if HBM has no room for one KV block."""
    model = parameters.served_model()
    graphs = parameters.graphs()
    taken = parameters.weights_bytes() + graphs.bytes + parameters.activation_bytes
    room = (parameters.hbm_bytes - taken) // (parameters.kv_bytes_per_token() * parameters.kv_block_tokens)
    blocks = room if parameters.kv_blocks is None else parameters.kv_blocks
    if room < 1 or blocks > room:
        block_bytes = parameters.kv_bytes_per_token() * parameters.kv_block_tokens
        raise DoesNotFit(model.name, taken + block_bytes * max(1, parameters.kv_blocks or 1), parameters.hbm_bytes)
    return HostProvisioned(model.name, parameters.weights_bytes(), graphs.count, blocks)
