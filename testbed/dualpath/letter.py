"""What a letter is: what a machine of one node tells a machine of another, by SEND.

Letters are control only and small; KV moves by WRITE and READ (`testbed.dualpath.traffic_manager`). A letter names
no sender unless its reader needs it. `testbed.dualpath.letters` lists all of them.
"""

from __future__ import annotations

from testbed.machine import Message


class Letter(Message, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all letters."""
