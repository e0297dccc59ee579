"""`looplane reproduce` prints what it has beside what the paper has, and refuses on one line what it cannot read."""

import contextlib
import io
import json

import pytest

from testbed.command.__main__ import main
from testbed.command.exit_codes import ExitCode
from testbed.experiment.loop_fit import SHAPES, SYSTEMS
from testbed.experiment.reproduction import METRICS, Line, agreement, gains, wrong_orders
from testbed.serving.models import MODELS
from testbed.serving.profiles import PROFILES


@pytest.fixture(scope="module")
def told():
    """One run of the command, as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["reproduce", "--json", "--rows"]) == ExitCode.PASSED
    return json.loads(out.getvalue())


def test_the_isolated_table_comes_as_near_as_the_page_says(told):
    assert told["agreement"]["figures"] == 36
    assert told["agreement"]["within_20_percent"] == 36
    assert told["agreement"]["mean_error"] < 0.1
    lines = [Line(**line) for line in told["isolated"]]
    assert agreement([line for line in lines if line.model == "qwen-3-30b-a3b"]).mean_error < 0.1


def test_what_hangs_on_the_row_of_the_longest_prompt_is_told(told):
    assert told["rows"]["30"] == told["agreement"]
    others = [row["within_20_percent"] for name, row in told["rows"].items() if name not in {"30", "None"}]
    assert max(others) < told["agreement"]["within_20_percent"], "the page says that the row counts as fitted"
    assert told["rows"]["None"]["within_20_percent"] < min(others)


def test_orders_are_the_papers_but_one_and_the_model_with_experts_gains_most(told):
    assert told["wrong_orders"] == ["qwen-3-32b, saturation req/s: vllm and sglang"]
    assert max(told["gains"], key=told["gains"].get) == "qwen-3-30b-a3b"


def test_phi_4_is_predicted_and_has_no_figure_of_the_paper(told):
    phi = [line for line in told["isolated"] if line["model"] == "phi-4-15b" and line["metric"] in METRICS]
    assert len(phi) == len(SYSTEMS) * len(METRICS)
    assert all(line["paper"] is None and line["ours"] > 0 for line in phi)


def test_neighbours_move_every_host_driven_system_and_never_blink(told):
    for line in told["interference"]:
        if line["system"] == "blink":
            assert line["ours"] == 1.0
        elif line["metric"] == "saturation kept":
            assert line["ours"] < 0.6
    assert {line["model"] for line in told["interference"]} == set(MODELS)


def test_figures_that_agree_and_orders_that_do_not_are_told_from_each_other():
    rows = [Line("llama-3-8b", name, METRICS[0], float(place), float(place)) for place, name in enumerate(SYSTEMS, 1)]
    assert agreement(rows).mean_error == 0
    assert wrong_orders(rows) == []
    swapped = [Line(row.model, row.system, row.metric, 5 - (row.ours or 0), row.paper) for row in rows]
    assert len(wrong_orders(swapped)) == 6
    with pytest.raises(ValueError, match="no figure"):
        agreement([Line("phi-4-15b", "blink", METRICS[0], 1.0, None)])


def test_gains_are_over_the_best_of_the_others():
    lines = [
        Line(model, name, METRICS[2], 3.0 if name == "blink" else 2.0, None) for model in MODELS for name in SYSTEMS
    ]
    assert gains(lines) == dict.fromkeys(MODELS, 1.5)
    assert set(SYSTEMS) == {"blink", *SHAPES}


def test_a_folder_without_host_loops_is_refused_on_one_line(tmp_path, capsys):
    assert main(["reproduce", "--profiles", str(tmp_path)]) == ExitCode.BAD_INPUT
    error = capsys.readouterr().err.strip()
    assert "host-loops.toml" in error
    assert "\n" not in error


def test_contention_that_nobody_measured_is_refused_on_one_line(tmp_path, capsys):
    (tmp_path / "host-loops.toml").write_bytes((PROFILES / "host-loops.toml").read_bytes())
    assert main(["reproduce", "--profiles", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert "host-contention.toml" in capsys.readouterr().err
    assert main(["reproduce", "--threads", "0"]) == ExitCode.BAD_INPUT
    assert "--threads 0: at least 1" in capsys.readouterr().err
