"""Which side reads a turn's hits, as the system's parameters want it: the memory behind `path_choice`.

`shorter_queue` is the paper's rule (design dualpath 1.4), the other values are what it is compared with or lies beyond
it. It remembers the last side of every pair of nodes, for ties and hysteresis. It knows no turn and no letter.
"""

from __future__ import annotations

from testbed.dualpath import path_choice
from testbed.dualpath.parameters import DualPathParameters

_TIES = {
    "prefill": path_choice.TIE_PREFILL,
    "decode": path_choice.TIE_DECODE,
    "alternate": path_choice.TIE_ALTERNATE,
}


class ReadingSides:
    """See the head of this file."""

    def __init__(self, parameters: DualPathParameters) -> None:
        self._parameters = parameters
        self._last: dict[tuple[str, str], int] = {}
        self._reads = 0

    @property
    def prefill_may_read(self) -> bool:
        """Whether a turn may be read by its prefill node at all."""
        return self._parameters.read_path not in ("decode", "bypass")

    def choose(
        self, prefill_node: str, decode_node: str, hits: int, prefill_queue: int, decode_queue: int
    ) -> tuple[str, int]:
        """prefill, decode, split or none, and how many of `hits` blocks the prefill side reads. Queues in tokens."""
        rule = self._parameters.read_path
        if not hits or rule == "bypass":
            return "none", 0
        self._reads += 1
        if rule == "split":
            here = path_choice.split(hits, self._parameters.block_tokens, prefill_queue, decode_queue)
            return ("split" if 0 < here < hits else "prefill" if here else "decode"), here
        if rule == "shorter_queue":
            pair = prefill_node, decode_node
            side = path_choice.choose(
                prefill_queue, decode_queue, self._last.get(pair, path_choice.NEITHER),
                _TIES[self._parameters.path_tie], self._parameters.path_hysteresis_tokens,
            )  # fmt: skip
            self._last[pair] = side
        elif rule == "round_robin":
            side = path_choice.PREFILL if self._reads % 2 else path_choice.DECODE
        else:
            side = path_choice.PREFILL if rule == "prefill" else path_choice.DECODE
        return ("prefill", hits) if side == path_choice.PREFILL else ("decode", 0)
