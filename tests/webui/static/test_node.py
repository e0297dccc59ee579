"""Runs the unit tests of the page's pure modules under Node: they live beside this file, in run/*.test.mjs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js (apt-get install nodejs)")
def test_the_pages_pure_modules() -> None:
    files = sorted(str(path) for path in (HERE / "run").glob("*.test.mjs"))
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_each_pure_module_has_its_tests() -> None:
    """Modules that touch the document are for the browser tests; every other one is tested here."""
    source = HERE.parents[2] / "webui" / "static" / "run"
    pure = {path.stem for path in source.glob("*.js") if "document" not in path.read_text()}
    tested = {path.name.removesuffix(".test.mjs") for path in (HERE / "run").glob("*.test.mjs")}
    # paint draws on what it is given, format and hands are used by every browser test, machine is in model's.
    assert pure - tested <= {
        "chosen",
        "excerpt",
        "figures",
        "format",
        "hands",
        "judgement",
        "logview",
        "machine",
        "model",
        "picture",
        "rows",
        "rowtable",
        "story",
        "timeline",
    }
