from __future__ import annotations

import hashlib
import hmac
import time

from hypothesis import given
from hypothesis import strategies as st

from tests.webui.hooks.guides_receiver import TOLERANCE_S, is_from_looplane
from webui.hooks.signature import signature_of

NOW = 1_800_000_000
AIR_S = 60
"""More than a test takes."""


def test_the_documented_recipe_gives_the_signature() -> None:
    body = b'{"event":"ping"}'
    expected = hmac.new(b"secret", b"1800000000." + body, hashlib.sha256).hexdigest()
    assert signature_of("secret", body, NOW) == f"t={NOW},v1={expected}"


@given(st.binary(max_size=200), st.text(min_size=1, max_size=40), st.integers(AIR_S - TOLERANCE_S, TOLERANCE_S - AIR_S))
def test_what_was_signed_is_taken_and_nothing_else(body: bytes, secret: str, late: int) -> None:
    at = int(time.time()) - late
    header = signature_of(secret, body, at)
    assert is_from_looplane(secret, body, header)
    assert not is_from_looplane(secret, body + b"x", header)
    assert not is_from_looplane(secret + "x", body, header)
    assert not is_from_looplane(secret, body, header.replace(f"t={at}", f"t={at + 1}"))


def test_old_messages_and_other_headers_are_refused() -> None:
    now = int(time.time())
    assert not is_from_looplane("s", b"x", signature_of("s", b"x", now - TOLERANCE_S - AIR_S))
    header = signature_of("s", b"x", now)
    for other in ("", "t=1", "v1=0", header + ",v1=0", header.upper(), header.replace("v1", "v0")):
        assert not is_from_looplane("s", b"x", other)
