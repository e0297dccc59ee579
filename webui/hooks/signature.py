"""The signature of a message: `Looplane-Signature: t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>">`.

The time is part of what is signed, so that a message that was overheard cannot be sent again later: receivers refuse
what is older than some minutes; each attempt is signed anew. What a receiver asks stands in docs/guide/api.md. Pure.
"""

from __future__ import annotations

import hashlib
import hmac

HEADER = "Looplane-Signature"


def signature_of(secret: str, body: bytes, now: int) -> str:
    """The header's value; `now` is Unix time in seconds."""
    digest = hmac.new(secret.encode(), b"%d." % now + body, hashlib.sha256).hexdigest()
    return f"t={now},v1={digest}"
