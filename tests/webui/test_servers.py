"""What is said of a PostgreSQL or a Redis before the console starts: one line, the host, never the password."""

from __future__ import annotations

import pytest

from tests.real_servers import PASSWORD, Postgres, Redis, free_port
from webui.connections import BadAddress, postgres_settings, redis_place
from webui.servers import ServerFault, check


@pytest.mark.parametrize(
    ("name", "url", "said"),
    [
        ("DATABASE_URL", "mysql://u:s3cret@h/d", "postgresql://"),
        ("DATABASE_URL", "h:5432", "postgresql://"),
        ("DATABASE_URL", "postgresql://u:s3cret@h:5432/", "names no database"),
        ("DATABASE_URL", "postgresql://u:s3cret@h:many/d", "no address"),
        ("REDIS_URL", "amqp://u:s3cret@h", "redis://"),
        ("REDIS_URL", "redis://:s3cret@h:many/0", "port"),
        ("REDIS_URL", "redis://:s3cret@h:70000/0", "port"),
    ],
)
def test_an_address_that_is_none(name: str, url: str, said: str) -> None:
    with pytest.raises(BadAddress, match=said) as caught:
        check({name: url})
    words = str(caught.value)
    assert words.startswith(name)
    assert "s3cret" not in words
    assert "\n" not in words


def test_a_server_that_is_away_is_named() -> None:
    port = free_port()
    for name, url in (("DATABASE_URL", f"postgresql://me:s3cret@127.0.0.1:{port}/d"),
                      ("REDIS_URL", f"redis://:s3cret@127.0.0.1:{port}/0")):  # fmt: skip
        with pytest.raises(ServerFault, match=f"{name}: .* at 127.0.0.1:{port}.*refused") as caught:
            check({name: url})
        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_servers_that_answer_are_taken(postgres_server: Postgres, redis_server: Redis) -> None:
    check({"DATABASE_URL": postgres_server.url, "REDIS_URL": redis_server.url})
    check({})


def test_a_wrong_password_a_missing_database_and_a_user_without_rights(
    postgres_server: Postgres, redis_server: Redis
) -> None:
    wrong = {
        "DATABASE_URL": [
            (postgres_server.url.replace(PASSWORD, "s3cret"), 'password authentication failed for user "looplane"'),
            (postgres_server.url_of("nowhere"), 'database "nowhere" does not exist'),
        ],
        "REDIS_URL": [(redis_server.url.replace(PASSWORD, "s3cret"), "invalid username-password pair")],
    }
    postgres_server.create("closed")
    postgres_server.ask("create role guest login password 'gu3st'")
    guest = f"postgresql://guest:gu3st@127.0.0.1:{postgres_server.port}/closed"
    wrong["DATABASE_URL"].append((guest, "guest may not make tables.*GRANT CREATE ON SCHEMA public TO guest"))
    for name, rows in wrong.items():
        for url, said in rows:
            with pytest.raises(ServerFault, match=said) as caught:
                check({name: url})
            assert not any(secret in str(caught.value) for secret in ("s3cret", "gu3st", PASSWORD))


def test_a_database_in_another_encoding(postgres_server: Postgres) -> None:
    postgres_server.ask("create database ascii encoding 'SQL_ASCII' locale 'C' template template0")
    with pytest.raises(ServerFault, match="SQL_ASCII; UTF8 is needed"):
        check({"DATABASE_URL": postgres_server.url_of("ascii")})


def test_a_redis_that_follows_another_takes_no_writes(redis_server: Redis) -> None:
    redis_server.run("redis-cli", "-p", str(redis_server.port), "replicaof", "127.0.0.1", str(free_port()))
    try:
        with pytest.raises(ServerFault, match="is a slave and takes no writes"):
            check({"REDIS_URL": redis_server.url})
    finally:
        redis_server.run("redis-cli", "-p", str(redis_server.port), "replicaof", "no", "one")


def test_what_the_address_says_itself_wins() -> None:
    found = postgres_settings("postgresql://u@h/d?connect_timeout=1&sslmode=require")
    assert found["OPTIONS"]["connect_timeout"] in (1, "1")
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["keepalives_idle"] == 10
    assert redis_place("redis+socket:///run/redis.sock") == "Redis at /run/redis.sock"
