"""The signature of a message: `Looplane-Signature: t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>">`.

The time is part of what is signed, so that a message that was overheard cannot be sent again later: receivers refuse
what is older than TOLERANCE_S. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re

HEADER = "Looplane-Signature"
TOLERANCE_S = 300
"""What a receiver should allow between its clock and `t`. Each attempt is signed anew."""
_FORM = re.compile(r"\At=(\d{1,12}),v1=([0-9a-f]{64})\Z", re.ASCII)


def signature_of(secret: str, body: bytes, now: int) -> str:
    """The header's value; `now` is Unix time in seconds."""
    digest = hmac.new(secret.encode(), b"%d." % now + body, hashlib.sha256).hexdigest()
    return f"t={now},v1={digest}"


def is_signed(secret: str, body: bytes, header: str, now: int) -> bool:
    """What a receiver asks of a message."""
    found = _FORM.match(header)
    if found is None or abs(now - int(found[1])) > TOLERANCE_S:
        return False
    return hmac.compare_digest(signature_of(secret, body, int(found[1])), header)
