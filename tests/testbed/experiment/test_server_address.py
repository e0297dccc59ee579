from __future__ import annotations

import msgspec
import pytest

from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.server_address import front_address, server_of
from testbed.experiment.sweep import Place


def plan() -> Plan:
    spec = spec_from_bytes(b'name = "x"\ntitle = "X"\n[systems.blink]\nkind = "blink"\n', "x.toml")
    return compile_plan(spec, Place("blink", (), 0), run="20260101-000000-0a1b2c", label="0a1b2c", clock="wall")


def test_the_dpu_serves_on_its_front_port_and_not_on_the_other() -> None:
    server = server_of(plan())
    addresses = {port.fabric: port.address for port in server.ports}
    assert server.name == "dpu0"
    assert front_address(server) == addresses["front"] != addresses["compute"]


def test_a_node_without_a_front_port_and_a_plan_without_a_server_are_named() -> None:
    with pytest.raises(ValueError, match="gpu0 has no port on the front network"):
        front_address(plan().node("gpu0"))
    clients = msgspec.structs.replace(plan(), nodes=(plan().node("client0"), plan().node("gpu0")))
    with pytest.raises(ValueError, match="no server"):
        server_of(clients)
