"""What may be asked of runnerd: the checks of a question's fields, before anything is done about it.

Standard library only, as runnerd. Size, ids and types are checked here; what a spec means is checked by the child that
runs it. Whatever is not expected is refused by name.
"""

from __future__ import annotations

import re
from typing import Any

RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}", re.ASCII)
SPEC_LIMIT = 256 * 1024
LINE_LIMIT = 2 * 1024 * 1024
"""JSON may take six characters for one byte of the spec."""
OVERRIDES_LIMIT, OVERRIDE_LENGTH = 64, 4096


class Refused(Exception):
    """A question that is not answered; `code` is for programs, `detail` for people."""

    def __init__(self, code: str, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(code)


def only(question: dict[str, Any], known: set[str]) -> None:
    """Refuses a question with other fields than `known`."""
    unknown = sorted(set(question) - known)
    if unknown:
        raise Refused("bad question", f"unknown {unknown[0]!r}; known are {', '.join(sorted(known)) or 'none'}")


def run_id(question: dict[str, Any]) -> str:
    """The run that is asked about. Raises Refused."""
    run = question.get("run")
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise Refused("bad run id", "a run id is YYYYMMDD-HHMMSS-<six hex digits>")
    return run


def override_texts(value: object) -> list[str]:
    """Overrides `k=v`, as texts. Raises Refused."""
    if not isinstance(value, list) or len(value) > OVERRIDES_LIMIT:
        raise Refused("bad overrides", f"a list of at most {OVERRIDES_LIMIT} texts k=v")
    for text in value:
        if not isinstance(text, str) or len(text) > OVERRIDE_LENGTH or "=" not in text or not text.isprintable():
            raise Refused("bad overrides", f"an override is printable text k=v of at most {OVERRIDE_LENGTH} characters")
    return list(value)


def spec_text(question: dict[str, Any]) -> str:
    """The experiment's text. Raises Refused."""
    spec = question.get("spec")
    if not isinstance(spec, str) or len(spec.encode("utf-8", "replace")) > SPEC_LIMIT or "\0" in spec:
        raise Refused("bad spec", f"spec is TOML text of at most {SPEC_LIMIT} bytes")
    return spec
