"""The run that a form describes, as a shell and as CI would start it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

OWN_FILE = "my-question.toml"


def shell_line(experiment: str, on: str, overrides: Sequence[str]) -> str:
    """On this machine."""
    file = f"fixtures/experiments/{experiment}.toml" if experiment else OWN_FILE
    return " ".join(["./looplane run", file, f"--on {on}", *_settings(overrides)])


def remote_line(experiment: str, on: str, overrides: Sequence[str], tags: Sequence[str], needs: Sequence[str]) -> str:
    """On this console, from any machine that has the command."""
    words = ["./looplane remote run", experiment or OWN_FILE, f"--on {on}", *_settings(overrides)]
    words += [f"--tag {shlex.quote(tag)}" for tag in tags] + [f"--needs {shlex.quote(need)}" for need in needs]
    return " ".join([*words, "--wait"])


def curl_line(address: str, experiment: str, body: dict[str, Any]) -> str:
    """On this console, from anything that speaks HTTP; `body` without the experiment itself."""
    if experiment:
        sent = shlex.quote(json.dumps({"experiment": experiment, **body}, ensure_ascii=False))
        return f'curl -H "Authorization: Bearer $TOKEN" \\\n  --json {sent} \\\n  {address}'
    program = shlex.quote(f"{json.dumps(body, ensure_ascii=False)} + {{spec: .}}")
    return f'jq -Rs {program} {OWN_FILE} |\n  curl -H "Authorization: Bearer $TOKEN" --json @- {address}'


def _settings(overrides: Sequence[str]) -> list[str]:
    return [f"--set {shlex.quote(line)}" for line in overrides]
