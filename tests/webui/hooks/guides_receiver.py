"""The receiver that people copy from the guide, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "api.md"
TOLERANCE_S = 300
"""Between its clock and the signature's."""


def is_from_looplane(secret: str, body: bytes, header: str) -> bool:
    """What the guide's lines say of a message."""
    (lines,) = re.findall(r"```python\n(import hashlib.*?)```", GUIDE.read_text(), re.DOTALL)
    told: dict[str, Any] = {}
    exec(lines, told)  # our own guide
    return bool(told["is_from_looplane"](secret, body, header))
