"""What first starts elsewhere broke on: system-wide pip (PEP 668), a `python` that is not there, modules that newer
interpreters or bare environments lack (known faults G7, G8). Our own first start is CI's.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
GONE = {"distutils", "imp", "asyncore", "asynchat", "smtpd"}
"""Not in Python 3.12."""
NOT_GIVEN = {"pkg_resources", "setuptools", "wheel"}
"""Not in what `python -m venv` makes from 3.12 on."""


def test_no_module_is_imported_that_newer_or_bare_environments_lack() -> None:
    found = []
    names = subprocess.run(["git", "ls-files", "*.py"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if not (TOP / name).is_file():
            continue
        for node in ast.walk(ast.parse((TOP / name).read_bytes())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found += [(name, module) for module in modules if module.partition(".")[0] in GONE | NOT_GIVEN]
    assert not found


def test_libraries_go_into_an_environment_of_our_own_and_no_bare_python_is_called() -> None:
    lines = [line.strip() for line in (TOP / "looplane").read_text().splitlines() if not line.strip().startswith("#")]
    pip = [line for line in lines if re.search(r"\bpip\b", line)]
    assert pip
    assert all(line.startswith('"$venv/bin/python" -m pip install') for line in pip)
    assert not [line for line in lines if "break-system-packages" in line or re.match(r"(exec )?(python|pip)3? ", line)]
