from __future__ import annotations

import hashlib
import hmac
import re
import time
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webui.hooks.signature import TOLERANCE_S, is_signed, signature_of

NOW = 1_800_000_000
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "api.md"


def test_the_guides_lines_take_what_we_sign_and_nothing_else() -> None:
    """The receiver that people copy, as it stands in the guide."""
    (lines,) = re.findall(r"```python\n(import hashlib.*?)```", GUIDE.read_text(), re.DOTALL)
    told: dict[str, Any] = {}
    exec(lines, told)  # our own guide
    takes, now = told["is_from_looplane"], int(time.time())
    header = signature_of("secret", b"body", now)
    assert takes("secret", b"body", header)
    old = signature_of("secret", b"body", now - TOLERANCE_S - 60)
    others = [("other", b"body", header), ("secret", b"Body", header)]
    others += [("secret", b"body", sent) for sent in ("v1=0", "", old)]
    for secret, body, sent in others:
        assert not takes(secret, body, sent)


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
