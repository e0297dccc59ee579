"""The rules compiled by numba, once a process."""

from functools import cache

import numpy as np
from numba import njit


@cache
def compiled(rule):
    """`rule` as machine code."""
    return njit(rule)


def both_agree(rule, *arguments):
    """Runs `rule` as Python and compiled on equal arguments; they must return and write the same. Gives the result
    and the arguments as they are afterwards.
    """
    plain = [np.array(value, np.int64) if isinstance(value, list) else value for value in arguments]
    native = [np.array(value, np.int64) if isinstance(value, list) else value for value in arguments]
    result = rule(*plain)
    assert compiled(rule)(*native) == result
    for left, right in zip(plain, native, strict=True):
        assert np.array_equal(left, right)
    return result, [value.tolist() if isinstance(value, np.ndarray) else value for value in plain]
