"""The servers that DATABASE_URL and REDIS_URL name: whether they are there and fit, and the tables, made once.

`python -m webui.servers check|migrate|tables`, as the service user, before anything of the console is started. Each
fault is one line that names the variable and the host and never a password.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import redis

from webui.connections import CONNECT_S, BadAddress, postgres_place, postgres_settings, redis_place

OLDEST_POSTGRES = 14
"""What Django 5.2 supports."""
_MIGRATING = 0x6C6F6F70
"""Key of the advisory lock: two consoles that start at once on one database make its tables one after the other."""
_LIBPQ = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password", "NAME": "dbname"}


class ServerFault(Exception):
    """A server that is not there, or does not fit: one line."""


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Looks at each server that is named. Raises ServerFault or BadAddress for the first that cannot be used."""
    if url := environment.get("DATABASE_URL"):
        _check_postgres(url)
    if url := environment.get("REDIS_URL"):
        _check_redis(url)


def _check_postgres(url: str) -> None:
    with _connected(url) as (connection, where):
        version = connection.info.server_version // 10_000
        if version < OLDEST_POSTGRES:
            raise ServerFault(f"{where} is version {version}; {OLDEST_POSTGRES} or newer is needed")
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise ServerFault(f"{where} has the encoding {encoding}; UTF8 is needed (createdb --encoding UTF8)")
        asked = "select s, has_schema_privilege(s, 'CREATE') from (select coalesce(current_schema(), 'public') s) x"
        schema, may = connection.execute(asked).fetchone() or ("public", False)
        if not may:
            user = connection.info.user
            raise ServerFault(
                f"{where}: {user} may not make tables; as its owner: GRANT CREATE ON SCHEMA {schema} TO {user}"
            )


def _check_redis(url: str) -> None:
    where = f"REDIS_URL: {redis_place(url)}"
    address = url.replace("redis+socket://", "unix://", 1)
    try:
        client = redis.Redis.from_url(address, socket_connect_timeout=CONNECT_S, socket_timeout=CONNECT_S)
        try:
            role = client.info("replication")["role"]
        finally:
            client.close()
    except (redis.RedisError, OSError, ValueError) as fault:
        raise ServerFault(f"{where}: {_reason(fault, url)}") from None
    if role != "master":
        raise ServerFault(f"{where} is a {role} and takes no writes; name its master")


def migrate(url: str | None) -> None:
    """Makes or changes the tables, one process at a time; refuses a database that a newer console has made."""
    from django.core.management import call_command

    with _one_at_a_time(url):
        if newer := unknown_migrations():
            raise ServerFault(f"the database was made by a newer Looplane ({newer[0]}); start that one")
        call_command("migrate", interactive=False, verbosity=0)
    from webui.benches.console import console_mark

    try:
        console_mark()
    except OSError as fault:
        raise ServerFault(f"the folder of runs cannot be marked as this console's: {fault}") from None


def check_tables() -> None:
    """For a bench, which makes no tables. Raises ServerFault if the console's are of another version than this."""
    if missing := missing_migrations():
        raise ServerFault(f"the console's database lacks {missing[0]}; start `looplane up` of this version there first")
    if newer := unknown_migrations():
        raise ServerFault(f"the database was made by a newer Looplane ({newer[0]}); start that version here too")


def unknown_migrations() -> list[str]:
    """Migrations of ours that were applied and are not in this source: it is older than the database."""
    from django.apps import apps
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(connection)
    ours = {config.label for config in apps.get_app_configs() if config.name.startswith("webui.")}
    known = {*loader.disk_migrations, *(name for one in loader.disk_migrations.values() for name in one.replaces)}
    strange = (key for key in loader.applied_migrations if key[0] in ours and key not in known)
    return sorted(f"{app}.{name}" for app, name in strange)


def missing_migrations() -> list[str]:
    """Migrations that the database does not have yet, in their order."""
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


@contextmanager
def _connected(url: str) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """A connection, and words for where it leads."""
    settings, where = postgres_settings(url), f"DATABASE_URL: {postgres_place(url)}"
    words = {theirs: settings[ours] for ours, theirs in _LIBPQ.items() if settings.get(ours)}
    try:
        connection = psycopg.connect(**words, **settings["OPTIONS"], autocommit=True)
    except psycopg.Error as fault:
        raise ServerFault(f"{where}: {_reason(fault, url)}") from None
    with connection:
        yield connection, where


@contextmanager
def _one_at_a_time(url: str | None) -> Iterator[None]:
    if not url:  # the file has one console, which holds the state folder's lock
        yield
        return
    with _connected(url) as (connection, _):
        connection.execute("select pg_advisory_lock(%s)", (_MIGRATING,))
        yield  # the lock ends with the connection


def _reason(fault: Exception, url: str) -> str:
    """Why, in a client library's own words: its first line without the address before it, and without secrets."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    text = lines[0] if lines else type(fault).__name__
    for mark in ("FATAL:", "failed:"):
        text = text.rpartition(mark)[2]
    password = urlsplit(url).password
    for secret in filter(None, (url, password, unquote(password or ""))):
        text = text.replace(secret, "***")
    return text.strip().rstrip(".")


def main(words: list[str] | None = None) -> int:
    """One verb. A fault is one line on standard error; exit 2 for an address, 3 for what is behind it."""
    (verb,) = sys.argv[1:] if words is None else words
    try:
        if verb == "check":
            check()
            return 0
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")
        import django

        django.setup()
        if verb == "migrate":
            migrate(os.environ.get("DATABASE_URL"))
        else:
            check_tables()
    except (ServerFault, BadAddress) as fault:
        print(fault, file=sys.stderr)
        return 2 if isinstance(fault, BadAddress) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
