from __future__ import annotations

from testbed.experiment.hop_bytes import modelled_hops, modelled_ports
from testbed.experiment.run_facts import HopModel
from testbed.metrics.read_paths import Placing

MODEL = HopModel(block_tokens=64, full_bytes=1_000, landing="buffer", replicas=2, persist=True, storage_nics=2)


def placing(path: str, *, prefill_blocks: int = 0, decode_blocks: int = 0) -> Placing:
    return Placing(
        "pe1", 3, "de0", 2, 64 * (prefill_blocks + decode_blocks), 64 * 12, path, prefill_blocks, decode_blocks
    )


def test_the_prefill_path_crosses_its_own_ports() -> None:
    # 10 of 12 blocks hit; the answer fills one block more, its last token has no KV: 3 blocks are new.
    found = modelled_ports(MODEL, [(placing("prefill", prefill_blocks=10), 65)])
    assert found == {
        "pe1.snic1.snic_rx": 10_000,
        "pe1.cnic3.cnic_read": 10_000 + 12_000,
        "pe1.cnic3.cnic_write": 10_000,
        "pe1.cnic3.wire": 12_000,
        "de0.cnic2.wire": 12_000,
        "de0.cnic2.cnic_write": 12_000 + 12_000 + 3_000,
        "de0.cnic2.cnic_read": 12_000 + 3_000,
        "de0.snic0.snic_tx": 3_000,
    }


def test_the_decode_path_leaves_the_prefill_nodes_snic_alone() -> None:
    found = modelled_ports(MODEL, [(placing("decode", decode_blocks=10), 0)])
    assert "pe1.snic1.snic_rx" not in found
    assert found["de0.snic0.snic_rx"] == 10_000
    assert found["pe1.cnic3.cnic_write"] == 10_000
    assert found["pe1.cnic3.cnic_read"] == 2_000, "the miss alone goes back"
    assert found["de0.cnic2.cnic_read"] == 10_000 + 12_000 + 2_000


def test_hops_add_up_over_turns() -> None:
    turns = [(placing("prefill", prefill_blocks=10), 0), (placing("decode", decode_blocks=4), 0)]
    found = modelled_hops(MODEL, turns)
    assert (found["pe1-2"], found["de1-2"], found["pe8-9"], found["de6-7"]) == (10_000, 4_000, 12_000, 12_000)
    assert found["replicate"] == found["persist-write"] == (2 + 8) * 1_000


def test_what_is_not_persisted_is_not_written() -> None:
    model = HopModel(64, 1_000, "buffer", 1, persist=False, storage_nics=1)
    assert "persist-write" not in modelled_hops(model, [(placing("prefill", prefill_blocks=10), 640)])
