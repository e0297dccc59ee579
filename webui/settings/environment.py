"""What settings read of the environment that has a form of its own. A wrong value ends the start with one line."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(name: str, text: str) -> tuple[Network, ...]:
    """Of `10.0.0.1, 10.1.0.0/16`. Raises ValueError, which names what is no address."""
    found: list[Network] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError as fault:
            raise ValueError(f"{name}: {fault}") from None
    return tuple(found)


def rates(name: str, text: str, defaults: Mapping[str, int]) -> dict[str, int]:
    """`defaults` with what `api=6000, exports=0` says otherwise. Raises ValueError for other names and values."""
    found = dict(defaults)
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, value = part.partition("=")
        if key not in found or not (value.isascii() and value.isdecimal() and len(value) < 8):
            allowed = ", ".join(defaults)
            raise ValueError(f"{name}: {part!r}: name=number, a name of {allowed}, a number from 0 (no limit) on")
        found[key] = int(value)
    return found
