"""InfiniBand QoS: the service-level map and the two arbitration tables of a port.

Strings are those of OpenSM (doc/QoS_management_in_OpenSM.txt §7, after IBA 7.6.9), as the DualPath paper gives them:
`qos_max_vls 4`, `qos_high_limit 240`, `qos_vlarb_high 0:192,1:192,2:0,3:192`, `qos_vlarb_low …`, `qos_sl2vl 0,1,2,3,…`.
"""

from __future__ import annotations

import msgspec


class LaneTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One port's lanes. Weights are in units of 64 bytes; 0 means the entry is skipped."""

    max_vls: int = 4
    """Data lanes in use, 1 to 15 (VL15 is management and not modelled)."""
    high_limit: int = 240
    """Units of 4,096 bytes that the high table may send before one low packet; 255 = without limit."""
    vlarb_high: str = "0:192,1:192,2:0,3:192"
    vlarb_low: str = "0:192,1:192,2:64,3:192"
    sl2vl: str = "0,1,2,3"
    """Virtual lane of service level 0, 1, …; levels not named use the last lane named."""
