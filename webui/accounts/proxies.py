"""Whose address a request has. Behind a proxy that we were told of it is the one that the proxy vouches for.

Runs first: everything after it (throttle, limits, audit log, redirects to HTTPS) reads REMOTE_ADDR and the scheme. What
a client claims about itself is taken away, so nobody escapes a throttle by a header of their own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from webui.settings.environment import Network

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_HOST", "HTTP_FORWARDED")


def client_address(peer: str, forwarded: str, trusted: tuple[Network, ...]) -> str:
    """The last address of the chain that no trusted proxy has; `peer` itself if it is none."""
    address = peer
    for claimed in reversed([part.strip() for part in forwarded.split(",")]):
        if not _is_in(address, trusted) or not _is_address(claimed):
            break
        address = claimed
    return address


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_in(address: str, trusted: tuple[Network, ...]) -> bool:
    try:
        there = ipaddress.ip_address(address)
    except ValueError:  # a unix socket has none
        return False
    there = getattr(there, "ipv4_mapped", None) or there
    return any(there in network for network in trusted)


class TrustedProxies:
    """Middleware."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answers the request."""
        peer = request.META.get("REMOTE_ADDR", "")
        trusted: tuple[Network, ...] = settings.TRUSTED_PROXIES
        if _is_in(peer, trusted):
            request.META["REMOTE_ADDR"] = client_address(peer, request.META.get("HTTP_X_FORWARDED_FOR", ""), trusted)
        else:
            for name in FORWARDED:
                request.META.pop(name, None)
        return self.get_response(request)
