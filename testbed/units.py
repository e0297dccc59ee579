"""Units of the run: integer nanoseconds, bytes and bits per second, and their text forms.

Every time inside a machine is an integer number of *true* nanoseconds since the run's epoch (house style 2):
true means as on the modelled hardware, before a wall clock stretches it by the dilation.
"""

from __future__ import annotations

from typing import TypeAlias

Nanoseconds: TypeAlias = int
"""A moment or a length of time, in true nanoseconds."""

MICROSECOND: Nanoseconds = 1_000
MILLISECOND: Nanoseconds = 1_000_000
SECOND: Nanoseconds = 1_000_000_000

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

GBIT_PER_S = 1_000_000_000
"""Bits per second in one Gbit/s."""
GBYTE_PER_S = 8 * GBIT_PER_S
"""Bits per second in one GB/s, as memories and PCIe links are told in."""


IMAGE_FLOOR = 16
"""Least bytes of an image: what its stamp needs."""


def image_bytes(true_bytes: int, scale: int) -> int:
    """Bytes of the image that stands for `true_bytes` of KV: one for `scale` true ones, and room for its stamp."""
    return max(IMAGE_FLOOR, -(-true_bytes // scale))


def serialization_time(size_bytes: int, rate_bits_per_s: int) -> Nanoseconds:
    """Time that `size_bytes` occupy a link of `rate_bits_per_s`, rounded up to whole nanoseconds."""
    return -(-size_bytes * 8 * SECOND // rate_bits_per_s)


def milliseconds(time: Nanoseconds) -> float:
    """`time` in milliseconds, for people and reports only; machines never compare floats."""
    return time / MILLISECOND


def from_milliseconds(value: float) -> Nanoseconds:
    """The whole nanoseconds nearest to `value` milliseconds."""
    return round(value * MILLISECOND)


def from_microseconds(value: float) -> Nanoseconds:
    """The whole nanoseconds nearest to `value` microseconds."""
    return round(value * MICROSECOND)


def from_seconds(value: float) -> Nanoseconds:
    """The whole nanoseconds nearest to `value` seconds."""
    return round(value * SECOND)
