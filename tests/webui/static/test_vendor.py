"""What is vendored is listed in vendor/README.md by name, version, licence and SHA-256, and nothing else lies there."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[3] / "webui" / "static" / "vendor"
ROW = re.compile(
    r"^\| (?P<file>[\w.-]+) \| (?P<name>[\w.-]+) \| (?P<version>[\d.]+) \| (?P<licence>\S+) in (?P<text>[\w.-]+) "
    r"\| `(?P<sha256>[0-9a-f]{64})` \|$",
    re.MULTILINE,
)


def test_the_table_is_true() -> None:
    rows = list(ROW.finditer((VENDOR / "README.md").read_text()))
    assert rows
    listed = {"README.md"}
    for row in rows:
        listed |= {row["file"], row["text"]}
        assert row["version"] in row["file"]
        assert hashlib.sha256((VENDOR / row["file"]).read_bytes()).hexdigest() == row["sha256"], row["file"]
        assert (VENDOR / row["text"]).read_text().strip()
    assert {path.name for path in VENDOR.iterdir()} == listed


def test_nothing_is_fetched_from_elsewhere() -> None:
    """No page, style or module of ours names another host."""
    root = VENDOR.parents[1]
    files = [*root.glob("templates/**/*.html"), *root.glob("static/page/*"), *root.glob("static/run/*.js")]
    foreign = re.compile(r"""(?:src|href|url|import|fetch)[^\n]{0,20}["'(]\s*(?:https?:)?//(?!www\.w3\.org)""")
    assert not [path.name for path in files if path.is_file() and foreign.search(path.read_text())]


def test_nothing_is_inline() -> None:
    """The policy of webui.headers allows no inline script, style or handler, and the browser would drop them."""
    root = VENDOR.parents[1] / "templates"
    inline = re.compile(r"""\sstyle=|\son[a-z]+=["']|<style|<script(?![^>]*\ssrc=)[^>]*>""")
    for path in root.rglob("*.html"):
        assert not inline.search(path.read_text()), path
