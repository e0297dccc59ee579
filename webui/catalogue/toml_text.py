"""TOML from tables: one value on one line, as `--set` takes it, or a whole experiment file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from testbed.experiment.complaints import joined

_INLINE_BELOW = ("expect", "sweep")
"""Tables of these are values to their author, one a line."""
_DEL = "\\u007f"
"""JSON's escapes are TOML's, except that TOML wants this one escaped too."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def path_text(path: str, key: str) -> str:
    """`path` and one key more, as a file spells them."""
    return joined(path, key).replace("\x7f", _DEL)


def value_text(value: Any) -> str:
    """A value in TOML's spelling, on one line. Tables leave out what is None, which TOML cannot say."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", _DEL)
    if isinstance(value, Mapping):
        inner = [f"{path_text('', str(key))} = {value_text(one)}" for key, one in value.items() if one is not None]
        return "{ " + ", ".join(inner) + " }" if inner else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(one) for one in value) + "]"
    return repr(value)


def document(tables: Mapping[str, Any], *, head: str = "") -> str:
    """A TOML file with these tables; `head` is a comment above them."""
    lines = [f"# {_CONTROL.sub(' ', line)}".rstrip() for line in head.splitlines()]
    _write(tables, "", lines)
    return "\n".join(lines).strip("\n") + "\n"


def _write(tables: Mapping[str, Any], path: str, lines: list[str]) -> None:
    inner = {} if path in _INLINE_BELOW else {key: one for key, one in tables.items() if isinstance(one, Mapping)}
    flat = {key: one for key, one in tables.items() if key not in inner and one is not None}
    if path and (flat or not inner):
        lines += ["", f"[{path}]"]
    lines += [f"{path_text('', key)} = {value_text(one)}" for key, one in flat.items()]
    for key, one in inner.items():
        _write(one, path_text(path, key), lines)
