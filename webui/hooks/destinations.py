"""Where messages may go. A hook's address is chosen by a user, and the console stands inside somebody's network.

http and https only; the name is resolved once and the connection made to the very address that was checked, so that
a name cannot change its mind in between. Addresses that are not public are refused unless the installation allows
them (`LOOPLANE_HOOK_HOSTS`). Knows no database.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

LONGEST = 500
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]
_CARRIERS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")))
"""NAT64, and the two old forms (IPv4-compatible, IPv4-translated): the last four bytes are an IPv4 address."""


class BadDestination(Exception):
    """An address that no message is sent to; the sentence is for its owner."""


class Destination(NamedTuple):
    """A hook's address, taken apart."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query, as a request line has them."""

    @property
    def authority(self) -> str:
        """The Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"


def destination_of(url: str) -> Destination:
    """The parts of `url`. Raises BadDestination."""
    if len(url) > LONGEST or not url.isascii() or any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise BadDestination(f"An address has at most {LONGEST} visible ASCII characters and no spaces.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadDestination("That is no address; it looks like https://ci.example.org/looplane.") from None
    if parts.scheme not in ("http", "https"):
        raise BadDestination("An address begins with https:// or http://.")
    if "@" in parts.netloc:
        raise BadDestination("An address holds no user name or password; the signature says who sends.")
    if not parts.hostname or parts.fragment:
        raise BadDestination("An address names a host, and has no #fragment.")
    if port == 0:
        raise BadDestination("A port is 1 to 65535.")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), target)


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, in the order of preference. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_address(to: Destination, allowed: Sequence[str], resolver: Resolver = resolve) -> str:
    """The address to connect to. Raises BadDestination, also if only one of several addresses is not public."""
    try:
        addresses = resolver(to.host, to.port)
    except (OSError, UnicodeError):  # the second for a label that is empty or longer than 63 letters
        raise BadDestination(f"{to.host} is not known to this machine's name service.") from None
    if not addresses:
        raise BadDestination(f"{to.host} has no address.")
    if to.host.lower() not in allowed:
        for text in addresses:
            if not _may_go(ipaddress.ip_address(text.partition("%")[0]), allowed):
                raise BadDestination(
                    f"{to.host} is at an address that is not public; an admin can allow it by LOOPLANE_HOOK_HOSTS."
                )
    return addresses[0]


def _may_go(address: Address, allowed: Sequence[str]) -> bool:
    return is_public(address) or any(address in network for network in map(_network, allowed) if network is not None)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Whether anybody may be sent there: no loopback, link-local, private, reserved or multicast address.

    An IPv6 address that carries an IPv4 one (mapped, translated, 6to4, Teredo, NAT64) is as public as what it carries.
    """
    if not address.is_global or address.is_multicast or address.is_unspecified:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _CARRIERS):
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return all(is_public(inner) for inner in carried if inner is not None)
