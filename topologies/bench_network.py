"""The networks of one run with their containers: in the right order up, and in the reverse order down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from testbed.events.fidelity_events import HardwareEngaged, LanesApplied
from testbed.experiment.plan import NodePlan, Plan
from topologies import docker_host, images, lane_queues, lanes, reaper
from topologies.accelerators import socket_of
from topologies.docker_host import ContainerSpec, Docker, DockerFault, Mount
from topologies.fabric import Fabric
from topologies.hardware import Lending
from topologies.host_watch import HostWatch
from topologies.lane_desk import LaneDesk, UseTables
from topologies.mitigations import HUGE_PAGES_ENVIRONMENT
from topologies.naming import Names
from topologies.node_storage import FOLDER_VARIABLE, NodeStorage
from topologies.probe import probe
from topologies.processes import SOURCE, cpu_map, python_environment, site_packages
from topologies.programs import ProgramFailed
from topologies.registry import RunRegistry

Say = Callable[..., None]
NIC_SOCKET_VARIABLE = "LOOPLANE_NIC_SOCKET"
ACCELERATOR_SOCKET_VARIABLE = "LOOPLANE_ACCELERATOR_SOCKET"
_END_SHOWS_S = 0.1


class BenchNetwork:
    """Containers (or none), namespaces, bridges, lanes. `check` raises when the run has been asked to end."""

    def __init__(
        self,
        plan: Plan,
        names: Names,
        nodes: str,
        registry: RunRegistry,
        say: Say,
        check: Callable[[], None],
        cores: tuple[int, ...],
    ) -> None:
        self.plan = plan
        self.names = names
        self.docker: Docker | None = None
        self.image = ""
        """What containers are made from, once the network is built; empty without containers."""
        self.cpus = cpu_map(plan, cores)
        self._in_containers = nodes == "docker"
        self._registry = registry
        self._say = say
        self._check = check
        self._containers: dict[str, str] = {}
        self._queues: dict[str, lane_queues.PortQueues] = {}
        self._engine_used = False
        self._fabric: Fabric | None = None
        self._lending = Lending(registry, plan.hardware)
        self._storage = NodeStorage(plan, registry)

    @property
    def fabric(self) -> Fabric:
        """The networks, once built."""
        if self._fabric is None:
            raise RuntimeError("the network is not built")
        return self._fabric

    def build(self, folder: Path) -> Iterator[LanesApplied | HardwareEngaged]:
        """Builds everything; one event for each real interface that was put in, and one for each port, with its
        queues as read back. Raises what its parts raise.
        """
        for node in self.plan.nodes:
            self.names.node_folder(node.name).mkdir(parents=True)
        self._storage.open(folder)
        attach = self._start_containers(folder) if self._in_containers else {}
        self._check()
        self._fabric = Fabric(self.plan, self.names, attach, self._registry.note, self._lending)
        self._fabric.build()
        self._check()
        yield from self._fabric.engaged
        for port in self._fabric.switch_ports():
            self._queues[port.name] = queues = lane_queues.queues_of(port)
            classes = lanes.apply(port, queues)
            yield LanesApplied(port=port.name, setting_bits_per_s=port.port.rate_bits_per_s, classes=classes)
        self._say(f"{probe(self._fabric)} ways between ports carry frames of full size")

    def host_watch(self) -> HostWatch:
        """Tells what somebody else changes, from now on."""
        return HostWatch(self.fabric, self._queues)

    def lane_desk(self, folder: Path, at_nics: UseTables) -> LaneDesk:
        """Where somebody may ask for other lane tables while the run is watched."""
        return LaneDesk(folder / "control", self.fabric.switch_ports(), self._queues, at_nics)

    def container(self, node: str) -> str | None:
        """The container of a node; None for a namespace node."""
        return self._containers.get(node)

    def ended_container(self) -> str:
        """How the first container that does not run any more has ended; empty while all run."""
        if self.docker is None:
            return ""
        return next(filter(None, map(self.docker.fate, self._containers.values())), "")

    def ended(self) -> str:
        """How the first container, or keeper of a namespace, that does not run any more has ended; else empty.

        To be asked after a fault: a process that ends gives up its namespace a moment before it is seen to have ended.
        """
        limit = time.monotonic() + _END_SHOWS_S
        while self._fabric is not None and time.monotonic() < limit:
            with suppress(ProgramFailed, DockerFault):
                if ended := self.ended_container() or self._fabric.ended():
                    return ended
            time.sleep(_END_SHOWS_S / 10)
        return ""

    def close(self) -> None:
        """Takes everything down; goes on past what fails and raises the first fault at the end."""
        with suppress(OSError, ProgramFailed, DockerFault):
            self._say(f"removing {', '.join(self._made())}")
        faults: list[Exception] = []
        steps: list[Callable[[], object]] = [self._lending.give_back]
        if self._fabric is not None:
            steps.append(self._fabric.tear_down)
        if self.docker is not None:
            steps.append(self._remove_containers)
        steps.append(self._storage.close)  # once nothing has it open any more
        if self._engine_used:
            steps.append(lambda: docker_host.release(self.plan.label))
        for step in steps:
            try:
                step()
            except Exception as fault:  # noqa: BLE001  # the later steps must be taken too
                faults.append(fault)
        if faults:
            raise faults[0]

    def _made(self) -> Iterator[str]:
        """What is there to be removed, counted in the kernel and at the engine."""
        counts = {"interface": 0, "namespace": 0, "container": len(self._our_containers())}
        if self._fabric is not None:
            counts |= {"interface": self._fabric.interfaces(), "namespace": self._fabric.namespaces()}
        for what, count in counts.items():
            yield f"{count} {what}{'' if count == 1 else 's'}"

    def environment(self, node: NodePlan) -> dict[str, str]:
        """What a node's software finds in its environment."""
        found = {NIC_SOCKET_VARIABLE: str(self.names.nic_socket(node.name))}
        device = socket_of(self.plan, self.names, node.name)
        if device is not None:
            found[ACCELERATOR_SOCKET_VARIABLE] = str(device)
        chunks = self._storage.folder(node)
        if chunks is not None:
            found[FOLDER_VARIABLE] = str(chunks)
        if node.processes and "huge_pages" in self.plan.mitigations:
            found |= HUGE_PAGES_ENVIRONMENT
        return python_environment(found)

    def _start_containers(self, folder: Path) -> dict[str, int]:
        owner = folder.stat().st_uid
        if owner != 0:
            # A container's root has no capability, hence may not write into what is somebody else's.
            raise DockerFault(f"{folder} belongs to user {owner}; containerised nodes need a run folder of root's")
        self._engine_used = True
        self.docker = docker_host.acquire(self.plan.label)
        self._say(f"Docker at {self.docker.socket or 'the host engine'}")
        for leftover in reaper.reap().removed:  # containers of dead runs show only now that an engine answers
            self._say(f"reaped {leftover}")
        self.image = images.ensure(self.docker, self._say, self._check)
        attach: dict[str, int] = {}
        for node in self.plan.nodes:
            self._check()
            spec = self._spec(node, folder)
            attach[node.name] = self.docker.start_container(spec)
            self._containers[node.name] = spec.name
        return attach

    def _spec(self, node: NodePlan, folder: Path) -> ContainerSpec:
        libraries = [Mount(Path(path)) for path in site_packages() if not Path(path).is_relative_to(SOURCE)]
        device = self.plan.hardware.accelerators.get(node.name)
        devices = [Mount(Path(device.socket), writable=True)] if device is not None and device.socket else []
        chunks = self._storage.folder(node)
        disks = [Mount(chunks, writable=True)] if chunks is not None else []
        return ContainerSpec(
            name=self.names.container(node.name),
            label=self.plan.label,
            image=self.image,
            hostname=node.name.replace("_", "-"),
            cpus=self.cpus[node.name],
            memory_mib=node.memory_mib,
            mounts=(
                Mount(SOURCE),
                *libraries,
                *devices,
                *disks,
                Mount(folder, writable=True),
                Mount(self.names.node_folder(node.name), writable=True),
            ),
            environment=self.environment(node),
        )

    def _our_containers(self) -> list[str]:
        labelled = {} if self.docker is None else self.docker.labelled()
        return [name for name, label in labelled.items() if label == self.plan.label]

    def _remove_containers(self) -> None:
        assert self.docker is not None
        self.docker.remove(self._our_containers())
