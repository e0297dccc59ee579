from __future__ import annotations

from pathlib import Path

import pytest

from testbed.experiment.reading import read_spec
from webui.benches.needs import Offer, base_need, lacking, needs_of_spec, read_needs, read_tags

SMALL = Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml"


def test_what_a_spec_needs_follows_from_its_parts() -> None:
    assert needs_of_spec(read_spec(SMALL, [])) == ()
    noisy = "neighbours.noisy={kind='memory', threads=4, working_set_mib=512}"
    neighbours = [noisy, "systems.blink.neighbours=['noisy']"]
    needs = needs_of_spec(
        read_spec(SMALL, ["nodes=docker", "hardware.uplinks={compute={interface='enp1s0'}}", *neighbours])
    )
    assert needs == ("containers", "interface:enp1s0", "memory:3072")


def test_what_is_lacking_is_said_in_words() -> None:
    offer = Offer(
        {"simulate": True, "emulate": "no root", "interface:eth1": True}, frozenset({"lab-2"}), memory_mib=2000
    )
    assert lacking(["simulate", "lab-2", "interface:eth1", "memory:1999"], offer) == []
    assert lacking([base_need(emulation=True)], offer) == ["emulate (no root)"]
    assert lacking(["memory:2001"], offer) == ["2001 MiB of memory (it has 2000)"]
    assert lacking(["containers", "lab-3", "rdma:mlx5_0"], offer) == [
        "containers",
        "the tag lab-3",
        "the rdma mlx5_0",
    ]
    assert lacking(["memory:9999999"], Offer()) == [], "an amount that is not known is not asked"


def test_needs_are_read_once_each_and_odd_ones_named() -> None:
    assert read_needs([" lab-2 ", "lab-2", "", "memory:512", "interface:enp1s0f0"]) == [
        "lab-2",
        "memory:512",
        "interface:enp1s0f0",
    ]
    for odd in ("Lab 2", "-x", "memory:0", "memory:many", "interface:", "rdma:a b", "é", "x" * 41, "a\x00"):
        with pytest.raises(ValueError, match="a bench's tag"):
            read_needs([odd])
    with pytest.raises(ValueError, match="at most 16"):
        read_needs([f"t{number}" for number in range(17)])


def test_a_tag_is_no_ability() -> None:
    assert read_tags(["Lab-2", "lab-2"]) == ["lab-2"]
    for odd in ("emulate", "a b", "memory:3"):
        with pytest.raises(ValueError, match="none of simulate, emulate, containers"):
            read_tags([odd])
