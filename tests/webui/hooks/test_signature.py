from __future__ import annotations

import hashlib
import hmac

from hypothesis import given
from hypothesis import strategies as st

from webui.hooks.signature import TOLERANCE_S, is_signed, signature_of

NOW = 1_800_000_000


def test_the_documented_recipe_gives_the_signature() -> None:
    body = b'{"event":"ping"}'
    expected = hmac.new(b"secret", b"1800000000." + body, hashlib.sha256).hexdigest()
    assert signature_of("secret", body, NOW) == f"t={NOW},v1={expected}"


@given(st.binary(max_size=200), st.text(min_size=1, max_size=40), st.integers(-TOLERANCE_S, TOLERANCE_S))
def test_what_was_signed_is_taken_and_nothing_else(body: bytes, secret: str, late: int) -> None:
    header = signature_of(secret, body, NOW)
    assert is_signed(secret, body, header, NOW + late)
    assert not is_signed(secret, body + b"x", header, NOW + late)
    assert not is_signed(secret + "x", body, header, NOW + late)
    assert not is_signed(secret, body, header.replace(f"t={NOW}", f"t={NOW + 1}"), NOW + late)


def test_old_messages_and_other_headers_are_refused() -> None:
    header = signature_of("s", b"x", NOW)
    assert not is_signed("s", b"x", header, NOW + TOLERANCE_S + 1)
    for other in ("", "t=1", header + ",v1=0", header.upper(), header.replace("v1", "v0"), "t=١,v1=" + "0" * 64):
        assert not is_signed("s", b"x", other, NOW)
