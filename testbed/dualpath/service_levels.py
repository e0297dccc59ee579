"""Which InfiniBand service level carries what (DualPath A.1; which lane carries what is not stated there).

Levels map to virtual lanes by the table of the port (`sl2vl`); with the paper's weights VL2 is the only lane that the
high table leaves out, so KV goes there (design dualpath 1.8 [D]). Isolation is chosen by the table, never here.
"""

from __future__ import annotations

COLLECTIVE = 0
"""Model-inference communication: all-to-all, ReduceScatter, AllGather."""
CONTROL = 1
"""Letters between nodes. Our choice: on the high side, since a request's hand-over must not wait behind KV."""
KV = 2
"""KV blocks, and everything else."""
