"""Files of fixtures/profiles: read at construction time, outside machines, each into the struct of its kind."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

PROFILES = Path(__file__).resolve().parents[2] / "fixtures" / "profiles"
"""Where the shipped profiles lie."""
T = TypeVar("T")


class ProfileError(ValueError):
    """A profile file that cannot be read: which file, and what is wrong with it."""

    def __init__(self, file: str, problem: str) -> None:
        self.file = file
        self.problem = problem
        super().__init__(f"{file}: {problem}")


@lru_cache(maxsize=16)
def _tables(data: bytes) -> dict[str, Any]:
    """By content, so never stale. Planning one experiment with its refusals asks for the same file dozens of times."""
    return tomllib.loads(data.decode())


def parse(data: bytes, file: str, kind: type[T]) -> T:
    """What a TOML file of these bytes says; `file` is its name for errors. Raises `ProfileError`."""
    try:
        return msgspec.convert(_tables(data), kind)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ProfileError(file, str(error)) from None


def read(path: Path, kind: type[T]) -> T:
    """What the TOML file at `path` says. Raises `ProfileError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfileError(str(path), error.strerror or str(error)) from None
    return parse(data, str(path), kind)
