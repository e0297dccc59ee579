"""The plan of a trial as a picture and as a table: nodes by role, the fabrics between them, lanes, rates.

Geometry only; the template draws it as SVG. Rows: nodes that touch only the fabric below, the fabric, nodes between two
fabrics, and so on, as the run page has them. Many nodes of one role are one box that says how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.experiment.plan import FabricPlan, NodePlan, Plan

WIDTH = 720
BAR, LANE_BAR, NODE, LINK = 28, 50, 42, 34
BOX = 116
MOST_IN_ROW = 6
LANES_DRAWN = 6
ORDER = ("client", "scheduler", "dpu", "gpu", "prefill", "decode", "storage", "host")
"""From the clients' side to the GPUs'."""


@dataclass(frozen=True)
class Lane:
    """A virtual lane of a fabric: its share in the drawing, and what it says."""

    number: int
    words: str
    x: float = 0.0
    width: float = 0.0

    @property
    def text_x(self) -> float:
        """Where its words begin."""
        return self.x + 6

    @property
    def tone(self) -> int:
        """Which of the four colours of lanes."""
        return self.number % 4


@dataclass(frozen=True)
class Bar:
    """A fabric."""

    name: str
    y: float
    height: float
    words: str
    roce: bool
    lanes: tuple[Lane, ...]

    @property
    def text_y(self) -> float:
        """Base line of its words."""
        return self.y + 18

    @property
    def lane_y(self) -> float:
        """Top of its lanes."""
        return self.y + 27

    @property
    def lane_text_y(self) -> float:
        """Base line of their words."""
        return self.y + 39


@dataclass(frozen=True)
class Box:
    """A node, or several of a role."""

    x: float
    y: float
    width: float
    name: str
    role: str
    loose: bool
    """On no fabric and on no PCIe link."""

    @property
    def middle(self) -> float:
        """For its words."""
        return self.x + self.width / 2

    @property
    def name_y(self) -> float:
        """Base line of its name."""
        return self.y + 18

    @property
    def role_y(self) -> float:
        """Base line of its role."""
        return self.y + 33


@dataclass(frozen=True)
class Link:
    """A port, or all ports of a group on one fabric."""

    x: float
    y0: float
    y1: float
    words: str

    @property
    def text_x(self) -> float:
        """Where its words begin."""
        return self.x + 7

    @property
    def text_y(self) -> float:
        """Base line of its words."""
        return (self.y0 + self.y1) / 2 + 4


@dataclass
class Drawing:
    """Everything to be drawn."""

    height: float = 0.0
    bars: list[Bar] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    label: str = ""
    """What it shows, for those who do not see it."""
    width: int = WIDTH


@dataclass(frozen=True)
class Group:
    """Nodes that are one box."""

    name: str
    role: str
    nodes: tuple[NodePlan, ...]

    def ports(self, fabric: str) -> int:
        """How many ports they have on a fabric."""
        return sum(port.fabric == fabric for node in self.nodes for port in node.ports)


def rate_words(bits_per_s: float) -> str:
    """A rate for people, with about three digits."""
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits_per_s >= size:
            return f"{bits_per_s / size:.3g} {unit}"
    return f"{bits_per_s:.0f} bit/s"


def lane_weights(fabric: FabricPlan) -> list[tuple[int, int, int]]:
    """(lane, weight in the high table, weight in the low one) of each lane that has any, in units of 64 bytes."""
    if fabric.lanes is None:
        return []
    high: Counter[int] = Counter()
    low: Counter[int] = Counter()
    for lane, weight in fabric.lanes.high():
        high[lane] += weight
    for lane, weight in fabric.lanes.low():
        low[lane] += weight
    return [(lane, high[lane], low[lane]) for lane in range(fabric.lanes.max_vls) if high[lane] or low[lane]]


def lane_words(fabric: FabricPlan) -> list[Lane]:
    """Each lane with its weights in both arbitration tables; those without any are left out."""
    found = []
    for lane, high, low in lane_weights(fabric):
        said = [f"{name} {weight}" for name, weight in (("high", high), ("low", low)) if weight]
        found.append(Lane(lane, ", ".join(said)))
    return found


def fabric_words(fabric: FabricPlan, plan: Plan) -> str:
    """Protocol, MTU and rates of a fabric's ports."""
    ports = [port for node in plan.nodes for port in node.ports if port.fabric == fabric.name]
    rates = sorted({(port.rate_bits_per_s, port.kernel_rate_bits_per_s) for port in ports})
    shown = []
    for true, kernel in rates[:2]:
        slowed = f" → {rate_words(kernel)} here" if plan.clock == "wall" and kernel != true else ""
        shown.append(f"{rate_words(true)}{slowed}")
    return ", ".join([f"{'RoCEv2' if fabric.roce else 'TCP'}, MTU {fabric.mtu}", *shown])


def draw(plan: Plan) -> Drawing:
    """The picture of a plan."""
    used = [one for one in plan.fabrics if any(port.fabric == one.name for node in plan.nodes for port in node.ports)]
    names = [one.name for one in used]
    rows = _rows(plan, names)
    drawing = Drawing(label=f"{describe(plan)}; the table below has all")
    at: dict[str, tuple[float, float]] = {}
    placed: list[tuple[Group, float, float]] = []
    y = 2.0
    for place, row in enumerate(rows):
        if row:
            y += LINK if place else 0
            pitch = WIDTH / len(row)
            placed += [(group, pitch * (column + 0.5), y) for column, group in enumerate(row)]
            y += NODE
        if place < len(used):
            y += LINK if row or place == 0 else LINK / 2
            bar = _bar(used[place], plan, y)
            at[bar.name] = (bar.y, bar.y + bar.height)
            drawing.bars.append(bar)
            y += bar.height
    for group, x, top in placed:
        _place(drawing, group, x, top, at)
    drawing.height = y + 4
    return drawing


def _bar(fabric: FabricPlan, plan: Plan, y: float) -> Bar:
    lanes = lane_words(fabric) if fabric.roce else []
    drawn = lanes[:LANES_DRAWN]
    pitch = (WIDTH - 24) / max(1, len(drawn))
    placed = tuple(Lane(one.number, one.words, 12 + place * pitch, pitch - 4) for place, one in enumerate(drawn))
    return Bar(fabric.name, y, LANE_BAR if placed else BAR, fabric_words(fabric, plan), fabric.roce, placed)


def _place(drawing: Drawing, group: Group, x: float, top: float, at: dict[str, tuple[float, float]]) -> None:
    attached = [name for node in group.nodes for name in node.attached]
    has_ports = any(node.ports for node in group.nodes)
    role = group.role if has_ports else f"{group.role}, {'on PCIe' if attached else 'off the path'}"
    drawing.boxes.append(Box(x - BOX / 2, top, BOX, group.name, role, not has_ports and not attached))
    for fabric, (above, below) in at.items():
        ports = group.ports(fabric)
        if not ports:
            continue
        ends = (below, top) if above < top else (top + NODE, above)
        drawn = min(ports, 8) if len(group.nodes) == 1 else 1
        for place in range(drawn):
            words = f"{ports} ports" if ports > 1 and place == 0 else ""
            drawing.links.append(Link(x + (place - (drawn - 1) / 2) * 7, *ends, words))


def _rows(plan: Plan, fabrics: Sequence[str]) -> list[list[Group]]:
    rows: list[list[NodePlan]] = [[] for _ in range(len(fabrics) + 1)]
    for node in sorted(plan.nodes, key=lambda node: ORDER.index(node.role) if node.role in ORDER else 99):
        touched = sorted({fabrics.index(port.fabric) for port in node.ports})
        if not touched:
            rows[-1].append(node)
        elif len(touched) > 1:
            rows[touched[-1]].append(node)
        else:
            rows[0 if touched[0] == 0 else touched[0] + 1].append(node)
    return [_groups(row) for row in rows]


def _groups(row: list[NodePlan]) -> list[Group]:
    if len(row) <= MOST_IN_ROW:
        return [Group(node.name, node.role, (node,)) for node in row]
    by_role: dict[str, list[NodePlan]] = {}
    for node in row:
        by_role.setdefault(node.role, []).append(node)
    return [
        Group(f"{nodes[0].name} … {nodes[-1].name}" if len(nodes) > 1 else nodes[0].name,
              f"{len(nodes)} {role} nodes" if len(nodes) > 1 else role, tuple(nodes))
        for role, nodes in by_role.items()
    ]  # fmt: skip


def describe(plan: Plan) -> str:
    """The plan in one sentence."""
    roles = Counter(node.role for node in plan.nodes)
    said = ", ".join(f"{number} {role}" for role, number in roles.items())
    return f"{len(plan.nodes)} nodes ({said}) on {', '.join(one.name for one in plan.fabrics)}"


@dataclass(frozen=True)
class NodeRow:
    """A line of the table that says the same as the picture."""

    name: str
    role: str
    ports: str
    attached: str
    cores: str


def node_rows(plan: Plan) -> list[NodeRow]:
    """Every node with its ports by fabric."""
    rows = []
    for node in plan.nodes:
        counts = Counter(port.fabric for port in node.ports)
        ports = ", ".join(f"{fabric} × {number}" if number > 1 else fabric for fabric, number in counts.items())
        rows.append(NodeRow(node.name, node.role, ports or "none", ", ".join(node.attached), node.cores))
    return rows
