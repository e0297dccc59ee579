"""What the central scheduler stands on: profiled numbers, the ledger, reading sides, and its model pages."""

import re
from pathlib import Path

import numpy as np
import pytest

from testbed.dualpath.engine_ledger import EngineLedger, ReadQueues
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.profiled import processed_tokens, profiled, readable_tokens
from testbed.dualpath.reading_sides import ReadingSides
from testbed.dualpath.turn_record import TURN_TABLE
from testbed.units import SECOND

PAGES = Path(__file__).resolve().parents[3] / "docs" / "models"
GBIT_400 = 400_000_000_000


def test_alpha_is_what_a_nodes_snics_bring_in_three_seconds():
    # 150 GB of 40,016 bytes a token (design 1.9).
    assert readable_tokens(DualPathParameters(model="ds-660b"), GBIT_400, 3 * SECOND) == 150_000_000_000 // 40_016
    two = DualPathParameters(model="ds-660b", storage_nics=2)
    assert readable_tokens(two, GBIT_400, 3 * SECOND) == 300_000_000_000 // 40_016


def test_beta_counts_prompts_with_their_hits_in_five_seconds_and_goes_with_the_speed_of_compute():
    beta = processed_tokens(DualPathParameters(model="ds-660b"), 5 * SECOND)
    # At most 234 ms a turn of 33,150 tokens in the paper (Oracle, Fig. 7): at least 21 turns in 5 s.
    assert 21 * 33_150 < beta < 40 * 33_150
    slow = processed_tokens(DualPathParameters(model="ds-660b", compute_scale=10.0, quota=None), 5 * SECOND)
    quick = processed_tokens(DualPathParameters(model="ds-660b", quota=None), 5 * SECOND)
    assert slow == pytest.approx(quick / 10, rel=1e-3)


def test_what_is_declared_is_taken_and_memory_is_counted_in_blocks():
    sizes = {"hbm_kv_bytes": 10 << 24, "prefill_buffer_bytes": (5 << 24) - 1}
    known = profiled(DualPathParameters(model="qwen-2.5-32b", alpha_tokens=7, beta_tokens=8, **sizes), GBIT_400)
    assert (known.alpha_tokens, known.beta_tokens) == (7, 8)
    # A Full Block of 64 tokens is 16 MiB (design 1.9).
    assert (known.hbm_blocks, known.prefill_buffer_blocks) == (10, 4)


@pytest.mark.parametrize("model", ["ds-27b", "ds-660b", "qwen-2.5-32b"])
def test_coarser_layers_change_nothing_that_is_profiled_by_much(model):
    own, coarse = (profiled(DualPathParameters(model=model, layers=layers), GBIT_400) for layers in (None, 4))
    for mine, theirs in zip(own.__struct_fields__, coarse.__struct_fields__, strict=True):
        assert getattr(own, mine) == pytest.approx(getattr(coarse, theirs), rel=1e-3)


def test_what_is_given_and_taken_leaves_the_ledger_as_it_was():
    ledger = EngineLedger(["de0", "de1"], 2, 50)
    ledger.give(3, 640, 11)
    assert (ledger.tokens.tolist(), ledger.sequences.tolist()) == ([0, 0, 0, 640], [0, 0, 0, 1])
    assert ledger.free.tolist() == [50, 50, 50, 39]
    assert ledger.place_of(3) == ("de1", 1)
    ledger.take(3, 640, 11)
    assert not ledger.tokens.any()
    assert not ledger.sequences.any()
    assert (ledger.free == 50).all()


def test_nodes_one_after_another_are_a_group_and_lost_ones_leave_it():
    ledger = EngineLedger([f"de{n}" for n in range(5)], 2, 50, 2)
    assert [ledger.group_of(node) for node in ledger.nodes] == [0, 0, 1, 1, 2]
    ledger.give(3, 640, 11)
    assert ledger.group_tokens(ledger.groups).tolist() == [640, 0, 0]
    assert ledger.engines_of(0).tolist() == [0, 2, 1, 3]
    del ledger.members["de0"]
    del ledger.members["de4"]
    assert ledger.engines_of(0).tolist() == [2, 3]
    assert ledger.groups == [0, 1]
    assert EngineLedger(["pe0", "pe1"], 2).engines_of(0).tolist() == [0, 2, 1, 3]


def test_round_robin_ends_where_no_engine_is_left():
    ledger = EngineLedger(["pe0", "pe1"], 2)
    del ledger.members["pe0"]
    assert [ledger.next_in_turn() for _ in range(4)] == [2, 3, 2, 3]
    del ledger.members["pe1"]
    with pytest.raises(LookupError):
        ledger.next_in_turn()


def test_a_read_queue_is_the_last_report_and_what_the_node_had_not_seen_then():
    queues = ReadQueues(["pe0", "de0"])
    queues.assigned("pe0", 100)
    queues.assigned("pe0", 0)
    queues.assigned("pe0", 30)
    assert (queues.of("pe0"), queues.of("de0")) == (130, 0)
    queues.reported("pe0", 100, 2)
    assert queues.of("pe0") == 130
    queues.reported("pe0", 90, 3)
    assert queues.of("pe0") == 90
    queues.assigned("pe0", 5)
    queues.reported("pe0", 80, -1)
    assert queues.of("pe0") == 80


def test_the_last_side_is_remembered_for_each_pair_of_nodes():
    sides = ReadingSides(DualPathParameters(path_tie="alternate"))
    assert [sides.choose("pe0", "de0", 1, 0, 0)[0] for _ in range(3)] == ["prefill", "decode", "prefill"]
    assert sides.choose("pe0", "de1", 1, 0, 0)[0] == "prefill"
    steady = ReadingSides(DualPathParameters(path_hysteresis_tokens=100))
    assert [steady.choose("pe0", "de0", 1, queue, 50)[0] for queue in (0, 150, 151, 0)] == [
        "prefill", "prefill", "decode", "decode",
    ]  # fmt: skip


def test_a_turn_without_hits_is_read_by_nobody_and_turns_no_wheel():
    sides = ReadingSides(DualPathParameters(read_path="round_robin"))
    assert sides.choose("pe0", "de0", 0, 5, 0) == ("none", 0)
    assert [sides.choose("pe0", "de0", 9, 5, 0) for _ in range(2)] == [("prefill", 9), ("decode", 0)]


@pytest.mark.parametrize("name", ["request_scheduler", "step_times"])
def test_a_page_has_the_house_headings_in_order(name):
    page = (PAGES / f"{name}.md").read_text()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == [
        "Purpose", "Scope and limitations", "States", "Parameters", "Events", "Validation", "References",
    ]  # fmt: skip


def test_the_page_draws_the_table_of_turns_and_has_the_parameters_with_their_defaults():
    page = (PAGES / "request_scheduler.md").read_text()
    assert re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL) == [TURN_TABLE.mermaid()]
    found = re.findall(r"^\| `(\w+)` \| (\S+) \|", page, re.MULTILINE)
    assert len(found) == 20
    for name, default in found:
        value = getattr(DualPathParameters(), name)
        assert default == ("none" if value is None else f"{value:,}" if isinstance(value, int) else value)


def test_rules_write_to_arrays_of_whole_numbers_only():
    ledger = EngineLedger(["pe0"], 8)
    for array in (ledger.node_of, ledger.tokens, ledger.sequences, ledger.free, ledger.members["pe0"]):
        assert array.dtype == np.int64
