"""The formats of public traces: what is read from each, and complaints that name place and field."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from testbed.dualpath.blocks import block_ids
from testbed.serving.turns import Turn
from testbed.units import SECOND
from testbed.workload.recorded_sessions import Input, TraceError
from testbed.workload.traces import TraceFile, TraceFormat, parse
from testbed.workload.trajectories import Replay, Trajectory

TRACES = Path(__file__).resolve().parents[3] / "fixtures" / "traces"


def turns_of(trajectory: Trajectory) -> list[Turn]:
    replay = Replay(0, trajectory)
    return [replay.turn() for _ in trajectory.rounds]


def fixture(name: str, form: TraceFormat, told: Input = "cumulative") -> list[Trajectory]:
    path = TRACES / name
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    return parse([TraceFile(inside.name, inside.read_bytes()) for inside in paths], form, told, 500)


def lines(*entries: dict[str, Any]) -> list[TraceFile]:
    return [TraceFile("t.jsonl", "\n".join(json.dumps(entry) for entry in entries).encode())]


def test_coding_sessions_hit_nearly_all_of_their_prompts() -> None:
    found = fixture("claude-code", "claude-code")
    assert [len(one.rounds) for one in found] == [14, 9, 11, 2]
    assert [one.origin for one in found] == ["session_0", "session_1", "session_2", "session_2/2"]
    hits = [turn.context_tokens / turn.prompt_tokens for one in found[:3] for turn in turns_of(one)[1:]]
    assert median(hits) > 0.93
    recorded = json.loads((TRACES / "claude-code" / "session_0.json").read_text())["requests"]
    assert [turn.prompt_tokens for turn in turns_of(found[0])] == [request["in"] for request in recorded]
    assert [turn.generate_tokens for turn in turns_of(found[0])] == [request["out"] for request in recorded]
    assert [here.pause for here in found[0].rounds] == [round(r["think_time"] * SECOND) for r in recorded]


def test_a_session_that_is_cut_back_hits_only_what_it_kept() -> None:
    turn = turns_of(fixture("claude-code", "claude-code")[1])[5]
    before = turns_of(fixture("claude-code", "claude-code")[1])[4]
    assert turn.prompt_tokens < before.prompt_tokens
    assert turn.context_tokens == turn.prompt_tokens // 64 * 64


def test_a_sub_agent_shares_its_parents_beginning_and_nobody_elses() -> None:
    found = fixture("claude-code", "claude-code")
    parent, sub, stranger = (block_ids(turns_of(found[place])[0].prompt, 64) for place in (2, 3, 0))
    assert parent[:40] == sub[:40]
    assert not set(stranger) & set(parent)


def test_conversations_share_blocks_of_512_over_all_lines_full_ones_alone() -> None:
    """An infinite cache of full blocks, as the published hit rates are counted (serving 2.1)."""
    found = fixture("mooncake.jsonl", "mooncake")
    assert len(found) == 60
    seen: set[int] = set()
    hits = total = 0
    for one in found:
        (turn,) = turns_of(one)
        full = block_ids(turn.prompt, 512)[: turn.prompt_tokens // 512]
        hits += 512 * next((place for place, block in enumerate(full) if block not in seen), len(full))
        total += turn.prompt_tokens
        seen.update(full)
    told = [json.loads(line) for line in (TRACES / "mooncake.jsonl").read_text().splitlines()]
    assert total == sum(line["input_length"] for line in told)
    ids: set[int] = set()
    expected = 0
    for line in told:
        full_ids = line["hash_ids"][: line["input_length"] // 512]
        expected += 512 * next((place for place, block in enumerate(full_ids) if block not in ids), len(full_ids))
        ids.update(full_ids)
    assert hits == expected
    assert 0.2 < hits / total < 0.6


def test_known_fault_22_the_fixtures_ids_need_more_than_32_bits() -> None:
    told = [json.loads(line) for line in (TRACES / "mooncake.jsonl").read_text().splitlines()]
    assert min(line["hash_ids"][0] for line in told) > 1 << 32


def test_chats_are_chained_by_their_parents() -> None:
    found = fixture("bailian.jsonl", "bailian")
    told = [json.loads(line) for line in (TRACES / "bailian.jsonl").read_text().splitlines()]
    assert sum(len(one.rounds) for one in found) == len(told) == 60
    assert len(found) == sum(line["parent_chat_id"] == -1 for line in told)
    assert all(turn.context_tokens > 0 for one in found for turn in turns_of(one)[1:])


def test_tool_sessions_are_delta_and_their_tools_take_time() -> None:
    found = fixture("llmservingsim.jsonl", "llmservingsim", "delta")
    told = [json.loads(line)["sub_requests"] for line in (TRACES / "llmservingsim.jsonl").read_text().splitlines()]
    assert [[turn.append_tokens for turn in turns_of(one)] for one in found] == [
        [sub["input_toks"] for sub in subs] for subs in told
    ]
    assert [here.pause for here in found[0].rounds] == [0, *(sub["tool_duration_ns"] for sub in told[0][:-1])]


def test_known_fault_23_the_same_file_needs_the_right_word() -> None:
    with pytest.raises(TraceError, match=r"line \d+, sub_requests\[1\]: .*delta"):
        fixture("llmservingsim.jsonl", "llmservingsim", "cumulative")
    with pytest.raises(TraceError, match=r"session_0.json: requests\[1\]: .*cumulative"):
        fixture("claude-code", "claude-code", "delta")


def test_lines_of_a_session_are_one_trajectory_with_its_delays() -> None:
    base = {"output_length": 5}
    told = [
        {"session_id": "a", "timestamp": 0, "input_length": 100, **base},
        {"input_length": 70, **base},
        {"session_id": "a", "delay_ms": 250, "input_length": 300, **base},
        {"session_id": 7, "delay": 10, "input_length": 90, **base},
    ]
    found = parse(lines(*told), "mooncake", "cumulative", 500)
    assert [one.origin for one in found] == ["session a", "line 2", "session 7"]
    assert [here.pause for here in found[0].rounds] == [0, SECOND // 4]


@pytest.mark.parametrize("form", ["mooncake", "bailian", "llmservingsim"])
def test_blank_lines_and_unknown_fields_do_no_harm(form: TraceFormat) -> None:
    told: Input = "delta" if form == "llmservingsim" else "cumulative"
    data = (TRACES / f"{form}.jsonl").read_bytes()
    spread = data.replace(b"\n", b"\r\n\r\n").replace(b'{"', b'{"colour":"blue","', 1)
    one, other = (parse([TraceFile("x", each)], form, told, 500) for each in (spread, data))
    assert [each.rounds for each in one] == [each.rounds for each in other]


GOOD = {"input_length": 100, "output_length": 5}


@pytest.mark.parametrize(
    ("form", "entries", "complaint"),
    [
        ("mooncake", [GOOD, {"input_length": 3}], "t.jsonl: line 2: Object missing required field `output_length`"),
        ("mooncake", [{**GOOD, "output_tokens": 3, "input_length": -1}], "t.jsonl: line 1, input_length: Expected"),
        ("mooncake", [{**GOOD, "hash_ids": [1, "x"]}], r"t.jsonl: line 1, hash_ids\[1\]: Expected `int`, got `str`"),
        ("mooncake", [{**GOOD, "hash_ids": [-4]}], r"t.jsonl: line 1, hash_ids\[0\]: Expected `int` >= 0"),
        ("mooncake", [{**GOOD, "hash_ids": [1.5]}], r"t.jsonl: line 1, hash_ids\[0\]: Expected `int`, got `float`"),
        ("mooncake", [{**GOOD, "hash_ids": [1, 2, 3]}], "t.jsonl: line 1: 3 hash ids for 100 tokens"),
        ("mooncake", [], "t.jsonl: there is no session in it"),
        ("bailian", [{**GOOD, "chat_id": 1, "parent_chat_id": -1}] * 2, "t.jsonl: line 2: chat_id 1 is there twice"),
        ("llmservingsim", [{"session_id": 1, "sub_requests": []}], "t.jsonl: line 1: sub_requests is empty"),
        (
            "llmservingsim",
            [{"session_id": 1, "sub_requests": [{"input_toks": 5, "output_toks": 1}]}] * 2,
            "t.jsonl: line 2: session_id 1 is there twice",
        ),
        (
            "llmservingsim",
            [{"session_id": 1, "arrival_time_ns": -5, "sub_requests": [{"input_toks": 5, "output_toks": 1}]}],
            "t.jsonl: line 1, arrival_time_ns: Expected `int` >= 0",
        ),
        (
            "llmservingsim",
            [{"session_id": 1, "sub_requests": [{"input_toks": "many", "output_toks": 1}]}],
            r"t.jsonl: line 1, sub_requests\[0\].input_toks: Expected `int`, got `str`",
        ),
        ("claude-code", [{"id": "x", "block_size": 64, "requests": [{"type": "n", "in": 5}]}],
         r"t.jsonl: requests\[0\]: the field out is missing"),
        ("claude-code", [{"id": "x", "block_size": 64, "requests": [{"type": "n", "in": 0, "out": 4}]}],
         r"t.jsonl: requests\[0\]: a prompt of 0 tokens"),
        ("claude-code", [{"id": "x", "block_size": 0, "requests": []}], "t.jsonl: block_size: Expected `int` >= 1"),
    ],
)  # fmt: skip
def test_a_wrong_trace_is_told_with_its_place_and_field(
    form: TraceFormat, entries: list[dict[str, Any]], complaint: str
) -> None:
    told: Input = "delta" if form == "llmservingsim" else "cumulative"
    with pytest.raises(TraceError, match=complaint) as raised:
        parse(lines(*entries), form, told, 500)
    assert "\n" not in str(raised.value)


def test_text_that_is_no_json_is_told_with_its_line() -> None:
    with pytest.raises(TraceError, match=r"^s.json: line 3: JSON is malformed"):
        parse([TraceFile("s.json", b'{\n"id": "x",\n"block_size" 64}')], "claude-code", "cumulative", 5)


def test_no_more_sessions_than_asked_for() -> None:
    data = (TRACES / "mooncake.jsonl").read_bytes()
    whole, few = (parse([TraceFile("m", data)], "mooncake", "cumulative", most) for most in (500, 7))
    assert few == whole[:7]
