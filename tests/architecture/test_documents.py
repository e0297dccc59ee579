"""Every page of ours can be followed: its links lead somewhere, and the commands that it shows are taken as shown."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from testbed.command.__main__ import build_parser

TOP = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"…|\.\.\.|[<>|&;`]|\bNAME\b|\$\(")
"""In a command: something for the reader to fill in, or another program's part."""
PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=TOP, capture_output=True, text=True, check=True).stdout.split()


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "") for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts}


def commands(text: str) -> list[str]:
    """Whole lines of blocks that begin with our command, put together where they go on in the next line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip().removeprefix("$ ") for line in lines if re.match(r"\s*(\$ )?\./looplane [a-z]", line)]


@pytest.mark.parametrize("document", PAGES)
def test_links_lead_somewhere(document: str) -> None:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", (TOP / document).read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = ((TOP / document).parent / path).resolve() if path else TOP / document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


@pytest.mark.parametrize("document", PAGES)
def test_commands_are_taken_as_shown(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = []
    for line in commands((TOP / document).read_text(encoding="utf-8")):
        told = re.sub(r"\s#.*", "", line)
        if LEFT_OUT.search(told):
            continue
        words = shlex.split(told)[1:]
        refused += [f"{line}: there is no {word}" for word in words
                    if word.startswith("fixtures/") and not (TOP / word).exists()]  # fmt: skip
        try:
            build_parser(words[0]).parse_args(words)
        except SystemExit as end:
            if end.code:
                refused.append(f"{line}: {capsys.readouterr().err.splitlines()[-1]}")
    assert not refused
