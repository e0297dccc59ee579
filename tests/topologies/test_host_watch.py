"""What the watch over a run's namespaces takes for a change, and what not. Whole runs: scenarios/test_verdicts.py."""

from __future__ import annotations

import pytest

from topologies.host_watch import settled

LINK = "2: cnic0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 4200 qdisc noqueue state UP mode DEFAULT group default"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LINK, LINK.replace("state UP", "state LOWERLAYERDOWN").replace(",LOWER_UP", "")),
        (LINK, LINK.replace("<BROADCAST,MULTICAST,UP,LOWER_UP>", "<NO-CARRIER,BROADCAST,MULTICAST,UP>")),
        ("10.61.0.0/24 dev cnic0 proto kernel scope link", "10.61.0.0/24 dev cnic0 proto kernel scope link linkdown"),
        ("10.1.0.0/16 via 10.61.0.9 dev cnic0", "10.1.0.0/16 via 10.61.0.9 dev cnic0 dead linkdown"),
    ],
)
def test_a_carrier_that_comes_or_goes_is_no_change(before: str, after: str) -> None:
    assert settled(before) == settled(after)


@pytest.mark.parametrize(
    "after",
    [
        LINK.replace("mtu 4200", "mtu 1500"), LINK.replace("UP,LOWER_UP", "LOWER_UP"), LINK.replace("cnic0", "cnic1"),
        LINK.replace("noqueue", "tbf"), LINK.replace("MULTICAST,", "MULTICAST,PROMISC,"),
    ],
)  # fmt: skip
def test_what_somebody_sets_is_one(after: str) -> None:
    assert settled(LINK) != settled(after)
