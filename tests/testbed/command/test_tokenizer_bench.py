"""`looplane bench tokenizer`: its texts, its pairs and its form. How fast is not judged here."""

from __future__ import annotations

import json

import pytest

from testbed.command import tokenizer_bench
from testbed.command.__main__ import main
from testbed.command.bench import BENCHMARKS, GROUPS
from testbed.command.exit_codes import ExitCode
from testbed.serving.deepseek import deepseek_vocabulary


def test_the_group_has_a_time_of_each_and_a_ratio_for_each_length_and_kind() -> None:
    rows = GROUPS["tokenizer"]
    for kind in ("seen", "unseen"):
        for tokens in tokenizer_bench.LENGTHS:
            assert {f"tokenizer_{kind}_{tokens}{end}" for end in ("", "_hf", "_ratio")} <= set(rows)
    assert (min(tokenizer_bench.LENGTHS), max(tokenizer_bench.LENGTHS)) == (10, 2048)
    assert all(name in BENCHMARKS for name in rows)


def test_a_length_is_measured_text_by_text(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["tokenizer_wrong_ids", "tokenizer_seen_10", "tokenizer_seen_10_hf", "tokenizer_seen_10_ratio"]
    assert main(["bench", "--json", *names, "tokenizer_unseen_10_ratio"]) == ExitCode.PASSED
    rows = json.loads(capsys.readouterr().out)
    assert rows["tokenizer_wrong_ids"]["max"] == 0
    assert {rows[name]["n"] for name in rows if name != "tokenizer_wrong_ids"} == {tokenizer_bench.TEXTS}
    assert rows["tokenizer_seen_10_ratio"]["unit"] == "ratio"


def test_excerpts_have_about_the_tokens_asked_for() -> None:
    vocabulary = deepseek_vocabulary()
    for tokens in (128, 2048):
        lengths = [len(vocabulary.encode(text)) for text in tokenizer_bench._excerpts(tokens)]
        assert 0.9 * tokens < sum(lengths) / len(lengths) < 1.1 * tokens
