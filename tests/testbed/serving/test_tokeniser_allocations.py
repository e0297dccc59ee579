"""How often the tokeniser of the emulated DPU asks the C library for memory: counted by malloc itself.

Python's own small objects (the list of ids) come from Python's arenas and are not counted; the libraries are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COUNTER = """
#include <stddef.h>
static unsigned long asked;
extern void *__libc_malloc(size_t), *__libc_realloc(void *, size_t), *__libc_calloc(size_t, size_t),
    *__libc_memalign(size_t, size_t);
static void count(void) { __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED); }
void *malloc(size_t n) { count(); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { count(); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { count(); return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { count(); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { count(); *p = __libc_memalign(a, n); return 0; }
unsigned long allocations(void) { return asked; }
"""
PROGRAM = """
import ctypes, json, os, sys
from testbed.serving.deepseek import deepseek_vocabulary
from testbed.serving.text_model import bundled_text

asked = ctypes.CDLL(os.environ["LD_PRELOAD"]).allocations
asked.restype = ctypes.c_ulong
story = bundled_text()
encode = deepseek_vocabulary(story, sys.argv[1]).encode
found = {}
for letters in (100, 1_000, 8_000):
    text = story[500 : 500 + letters]
    encode(text)
    before = asked()
    encode(text)
    found[letters] = asked() - before
print(json.dumps(found))
"""


def counted(folder: Path, tokeniser: str) -> dict[str, int]:
    library = folder / "counter.so"
    build = ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(build, input=COUNTER.encode(), check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tokeniser], env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(shutil.which("cc") is None, reason="counting needs a C compiler")
def test_a_request_takes_the_same_few_allocations_however_long_it_is(tmp_path: Path) -> None:
    ours = counted(tmp_path, "fastokens")
    assert max(ours.values()) <= 16, ours
    assert ours["8000"] == ours["1000"], ours
    theirs = counted(tmp_path, "huggingface")
    assert theirs["8000"] > 10 * theirs["100"], theirs
