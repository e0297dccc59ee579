"""What a browser calls itself, in words that its owner knows it by. A guess for a list; nothing is decided by it."""

from __future__ import annotations

import re

_BROWSERS = (
    ("Edge", re.compile(r"\bEdg\w*/(\d+)")),
    ("Opera", re.compile(r"\bOPR/(\d+)")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/(\d+)")),
    ("Chrome", re.compile(r"\b(?:HeadlessChrome|Chrome|CriOS)/(\d+)")),
    ("Safari", re.compile(r"\bVersion/(\d+)\S* .*Safari/")),
    ("curl", re.compile(r"\bcurl/(\d+)")),
)
"""The first that matches: most of them also claim to be those below."""
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS", "CrOS", "Linux")


def agent_words(agent: str) -> str:
    """`Firefox 132 on Linux`; the beginning of what was sent where that says nothing."""
    system = next((f" on {name}" for name in _SYSTEMS if name in agent), "")
    for name, pattern in _BROWSERS:
        found = pattern.search(agent)
        if found:
            return f"{name} {found[1]}{system}"
    return agent[:40] or "unknown"
