"""A trial of a network before a run is trusted to it: a datagram of full size between every two ports of a fabric.

Nothing may be fragmented on the way, so a link whose ends disagree on the MTU, or a bridge that drops long frames, is
found here and not in the middle of a run (faults B8, B14, B15). No program is started: the sockets are ours.
"""

from __future__ import annotations

import secrets
import socket
from itertools import permutations

from topologies.fabric import Fabric, NetworkFault, SwitchPort
from topologies.namespaces import network_of

_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2
_HEADERS = 28
_PATIENCE_S = 1.0
_TRIES = 3


def probe(fabric: Fabric) -> int:
    """Sends and receives between all ports of each fabric; returns how many ways were tried.

    Raises NetworkFault that names the first way on which nothing arrives.
    """
    tried = 0
    ports = fabric.members()
    for planned in fabric.plan.fabrics:
        members = [port for port in ports if port.fabric is planned]
        sockets = {port.name: _socket(fabric, port) for port in members}
        try:
            for source, target in permutations(members, 2):
                _try(source, target, sockets[source.name], sockets[target.name])
                tried += 1
        finally:
            for opened in sockets.values():
                opened.close()
    return tried


def _socket(fabric: Fabric, port: SwitchPort) -> socket.socket:
    with network_of(fabric.pid_of(port.node.name)):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
    opened.bind((port.port.address, 0))
    opened.settimeout(_PATIENCE_S)
    return opened


def _try(source: SwitchPort, target: SwitchPort, sender: socket.socket, receiver: socket.socket) -> None:
    size = target.fabric.mtu - _HEADERS
    way = f"{source.name} to {target.name}"
    for _ in range(_TRIES):
        payload = secrets.token_bytes(16).ljust(size, b"\0")
        try:
            sender.sendto(payload, receiver.getsockname())
            while True:
                if receiver.recv(65_536) == payload:
                    return
        except TimeoutError:
            continue
        except OSError as fault:
            why = f"a frame of {target.fabric.mtu} bytes cannot be sent: {fault.strerror}"
            raise NetworkFault(f"{way}: {why}") from fault
    raise NetworkFault(f"{way}: frames of {target.fabric.mtu} bytes do not arrive")
