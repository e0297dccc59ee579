"""How the launch page writes durations and lists of words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


@register.filter
def seconds(value: float) -> str:
    """A duration for people, with about two digits."""
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    if value < 3600:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


@register.filter
def as_words(value: str | Iterable[str] | None) -> str:
    """What a text field shows of words: as they were typed, or with blanks between them."""
    if value is None:
        return ""
    return value if isinstance(value, str) else " ".join(value)


@register.filter
def as_prose(text: str) -> SafeString:
    """Help of the schema, with what stands between backticks as code."""
    return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))
