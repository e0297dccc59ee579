"""Looplane's networks for Mininet's own command line, to look at a plan by hand:

    mn --custom topologies/custom.py --topo looplane --switch lxbr --controller none
    mn --custom topologies/custom.py --topo looplane,plan=RUNFOLDER/plan.json --switch lxbr --controller none
    mn --custom topologies/custom.py --topo looplane,clients=2,gpus=4 --switch lxbr --controller none

Mininet executes this file under the system's Python, so it may import nothing but the standard library and mininet,
and it may not know `__file__`. It is a picture of a plan's shape (nodes, switches, links, addresses): no lanes, no soft
RNICs, no containers, and `mn` builds it in the host's own namespace. Runs are `python -m topologies run`.
"""

# mypy: allow-untyped-calls
import json
from typing import Any

from mininet.topo import Topo

SUBNETS = {"front": "10.60.0", "compute": "10.61.0", "storage": "10.62.0"}
"""First three bytes of each fabric's addresses, as the planner has them."""
INTERFACES = {"front": "front0", "compute": "cnic0", "storage": "snic0"}


class LooplaneTopo(Topo):
    """The fabrics of a plan, or of as many clients, DPUs and GPUs as asked for."""

    def build(self, plan: str = "", clients: int = 1, dpus: int = 1, gpus: int = 1) -> None:
        """Called by Topo with what stands behind `--topo looplane`."""
        if plan:
            with open(plan) as file:
                shape = json.load(file)
        else:
            shape = _shape(int(clients), int(dpus), int(gpus))
        prefixes = {fabric["name"]: fabric["subnet"].split("/")[1] for fabric in shape["fabrics"]}
        for number, fabric in enumerate(shape["fabrics"], 1):
            self.addSwitch(fabric["name"], dpid=str(number))
        for node in shape["nodes"]:
            # Mininet gives an address to every host that has none of its own: a host without ports has no use for it.
            ports = node["ports"]
            first = f"{ports[0]['address']}/{prefixes[ports[0]['fabric']]}" if ports else None
            self.addHost(node["name"], ip=first)
            for port in ports:
                there = {"ip": f"{port['address']}/{prefixes[port['fabric']]}"}
                self.addLink(
                    node["name"], port["fabric"], intfName1=port["interface"], addr1=port["mac"], params1=there
                )


def _shape(clients: int, dpus: int, gpus: int) -> "dict[str, Any]":
    wanted = [("client", clients, ["front"]), ("dpu", dpus, ["front", "compute"]), ("gpu", gpus, ["compute"])]
    taken = dict.fromkeys(SUBNETS, 0)
    nodes: list[dict[str, Any]] = []
    for role, count, members in wanted:
        for number in range(count):
            ports = []
            for fabric in members:
                taken[fabric] += 1
                address = f"{SUBNETS[fabric]}.{taken[fabric]}"
                mac = "02:4c:" + ":".join(f"{int(part):02x}" for part in address.split("."))
                ports.append({"fabric": fabric, "interface": INTERFACES[fabric], "address": address, "mac": mac})
            nodes.append({"name": f"{role}{number}", "ports": ports})
    nodes.append({"name": "host0", "ports": []})
    fabrics = [{"name": name, "subnet": SUBNETS[name] + ".0/24"} for name in ("front", "compute")]
    return {"fabrics": fabrics, "nodes": nodes}


topos = {"looplane": LooplaneTopo}
