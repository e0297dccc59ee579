"""A secret that the next page shows, once: POST, redirect, GET, so that reloading makes no second one.

In between it lies nowhere in the clear: the session (in the database) holds it under a one-time pad, a cookie of this
browser holds the pad. Neither says anything without the other, and both are gone when the page has been made.
"""

from __future__ import annotations

import base64
import secrets

from django.conf import settings
from django.http import HttpRequest, HttpResponse

COOKIE = "shown-once"
WITHIN_S = 120
_KEPT = "shown_once"


def secret_put(request: HttpRequest, response: HttpResponse, *, kind: str, secret: str) -> None:
    """Keeps `secret` for the page that `response` leads to."""
    data = secret.encode()
    pad = secrets.token_bytes(len(data))
    request.session[_KEPT] = {"kind": kind, "text": _text(_laid_over(data, pad))}
    response.set_cookie(
        COOKIE,
        _text(pad),
        max_age=WITHIN_S,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )


def secret_take(request: HttpRequest, *, kind: str) -> str | None:
    """The secret of this kind, if one waits for this page; it is gone afterwards."""
    kept = request.session.get(_KEPT)
    if not isinstance(kept, dict) or kept.get("kind") != kind:
        return None
    del request.session[_KEPT]
    try:
        pad, data = _bytes(request.COOKIES.get(COOKIE, "")), _bytes(kept["text"])
        return _laid_over(data, pad).decode() if len(pad) == len(data) else None
    except ValueError:  # somebody's own cookie
        return None


def _laid_over(data: bytes, pad: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(data, pad, strict=True))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, altchars=b"-_", validate=True)
