"""Plans made by hand, for tests of what makes them real."""

from __future__ import annotations

from testbed.experiment.plan import CapturePlan, FabricPlan, NodePlan, Plan, PortPlan, write_plan
from testbed.network.lanes import LaneTable

TRUE_RATE = 400_000_000_000
KERNEL_RATE = 100_000_000


def port(interface: str, fabric: str, number: int, kernel_rate: int = KERNEL_RATE) -> PortPlan:
    third = {"front": 60, "compute": 61, "storage": 62}[fabric]
    return PortPlan(
        interface=interface, fabric=fabric, address=f"10.{third}.0.{number}",
        mac=f"02:4c:00:{third:02x}:{number >> 8:02x}:{number & 255:02x}",
        rate_bits_per_s=TRUE_RATE, kernel_rate_bits_per_s=kernel_rate,
    )


def fabrics(mtu: int = 4200, lanes: LaneTable | None = None) -> tuple[FabricPlan, ...]:
    return (
        FabricPlan(name="front", subnet="10.60.0.0/24", mtu=1500, roce=False),
        FabricPlan(name="compute", subnet="10.61.0.0/24", mtu=mtu, roce=True, lanes=lanes or LaneTable()),
    )


def plan(label: str, nodes: tuple[NodePlan, ...], **changes: object) -> Plan:
    values: dict[str, object] = {
        "run": f"20260101-000000-{label}", "label": label, "clock": "wall", "system": "blink", "kind": "blink",
        "seed": 1, "dilation": 1.0, "byte_scale": 4000, "path_mtu": 4096, "fabrics": fabrics(), "nodes": nodes,
        "parameters": {}, "workload": {}, "time_limit_s": 60.0,
    }
    values.update(changes)
    return Plan(**values)  # type: ignore[arg-type]


def demo_nodes() -> tuple[NodePlan, ...]:
    return (
        NodePlan(name="client0", role="client", cores="host", memory_mib=512, ports=(port("front0", "front", 1),)),
        NodePlan(
            name="dpu0", role="dpu", cores="hardware", memory_mib=512,
            ports=(port("front0", "front", 2), port("cnic0", "compute", 2)),
        ),
        NodePlan(name="gpu0", role="gpu", cores="hardware", memory_mib=512, ports=(port("cnic0", "compute", 3),)),
        NodePlan(name="host0", role="host", cores="host", memory_mib=512),
    )


def demo_plan(label: str, **changes: object) -> Plan:
    return plan(label, **{"nodes": demo_nodes(), **changes})  # type: ignore[arg-type]


def capture(node: str, interface: str) -> CapturePlan:
    return CapturePlan(node=node, interface=interface)


def written(made: Plan) -> bytes:
    return write_plan(made)
