"""Turns and the collector: asked of the kernel and of Python, and read back from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emulators.promptness import ACCELERATOR_TURN

ASK = f"""
from emulators.promptness import ask_for_turns, settle
asked = ask_for_turns({ACCELERATOR_TURN})
settle()
import gc
print(asked, gc.get_freeze_count() > 1000)
print(open("/proc/self/sched").read())
"""


def test_a_process_gets_the_slice_it_asks_for_and_freezes_what_it_loaded() -> None:
    top = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", ASK], cwd=top, capture_output=True, text=True, check=True)
    said, *schedule = done.stdout.splitlines()
    asked, frozen = said.split()
    assert frozen == "True"
    slices = [line.split(":")[1].strip() for line in schedule if line.startswith("se.slice")]
    if asked != "True" or not slices:
        pytest.skip("this kernel tells no slice of a task's own (Linux 6.12 and newer do)")
    assert slices == [str(ACCELERATOR_TURN)]

