"""How the console connects to a PostgreSQL and a Redis: parsed addresses, and options with which an outage is noticed.

Settings and the checks before a start share it, so that what was checked is what is used. No client library and
nothing of Django is loaded here.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import dj_database_url

CONNECT_S = 5
POSTGRES_SCHEMES = ("postgres", "postgresql")
REDIS_SCHEMES = ("redis", "rediss", "redis+socket")
_SERVER_SIDE = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 3,
        "tcp_keepalives_count": 3,
        "idle_in_transaction_session_timeout": 30_000,
    }.items()
)
"""A worker's machine that loses its power in a transaction must not hold rows for two hours, the kernel's default."""


class BadAddress(ValueError):
    """An address that cannot be used; one line that names the variable and no secret."""


def postgres_settings(url: str) -> dict[str, Any]:
    """Django's settings for a DATABASE_URL; options that the URL names itself win. Raises BadAddress."""
    if url.partition(":")[0] not in POSTGRES_SCHEMES:
        raise BadAddress("DATABASE_URL: postgresql://USER:PASSWORD@HOST:PORT/NAME is expected")
    try:
        parsed: dict[str, Any] = dict(dj_database_url.parse(url))
    except (ValueError, KeyError):
        raise BadAddress("DATABASE_URL is no address of a PostgreSQL database") from None
    if not parsed.get("NAME"):
        raise BadAddress("DATABASE_URL names no database (…@HOST:PORT/NAME)")
    options = {
        "connect_timeout": CONNECT_S,
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        "application_name": "looplane",
        "options": _SERVER_SIDE,
    }
    # Not kept after a request: under ASGI each has a thread of its own, and a kept connection would be nobody's.
    return parsed | {"OPTIONS": options | parsed.get("OPTIONS", {}), "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True}


def postgres_place(url: str) -> str:
    """Where it is, for people. Raises BadAddress."""
    parsed = postgres_settings(url)
    host, port = parsed.get("HOST") or "the local socket", parsed.get("PORT")
    return f"PostgreSQL at {host}{f':{port}' if port else ''}, database {parsed['NAME']}"


def redis_place(url: str) -> str:
    """Where it is, for people. Raises BadAddress."""
    parts = urlsplit(url)
    if parts.scheme not in REDIS_SCHEMES:
        raise BadAddress("REDIS_URL: redis://:PASSWORD@HOST:PORT/NUMBER is expected, or rediss:// for TLS")
    if parts.scheme == "redis+socket":
        return f"Redis at {unquote(parts.path)}"
    try:
        port = parts.port or 6379
    except ValueError:
        raise BadAddress("REDIS_URL: its port is no number from 0 to 65535") from None
    return f"Redis at {parts.hostname or 'localhost'}:{port}"


def redis_options() -> dict[str, Any]:
    """Transport options of the broker: a Redis that does not answer costs a request seconds, not minutes."""
    return {"socket_connect_timeout": 2, "socket_timeout": 5, "socket_keepalive": True, "health_check_interval": 10}
