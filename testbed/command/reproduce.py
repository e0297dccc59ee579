"""`looplane reproduce`: the tables of Blink's evaluation, ours beside the paper's.

Fitted figures are read from fixtures/profiles/host-loops.toml; `--fit` fits them anew and adds what fits without one
model say of it. docs/models/calibration.md explains every line. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.telling import say
from testbed.experiment.loop_fit import PART, SHAPES, Fit, Fitted, fitted_of, isolated_table, leave_one_out
from testbed.experiment.paper import PAPERS, read_paper
from testbed.experiment.paper_load import LONG_EVERY, LONG_FIRST, LONG_PROMPT, LONGEST, RATES, SEEDS
from testbed.experiment.reproduction import (
    METRICS,
    RETAINED,
    Line,
    agreement,
    by_long_row,
    gains,
    interference,
    isolated,
    left_out,
    wrong_orders,
)
from testbed.experiment.surroundings import read_contention
from testbed.serving.host_loop import read_host_loops
from testbed.serving.host_work import contention_of
from testbed.serving.profiles import PROFILES, ProfileError

ROWS = (5, 15, LONG_FIRST, 45, 55, None)
"""Rows of the longest prompt for `--rows`, over the first minute of the lowest rate; None has no such prompt."""
THREADS = 24
"""Threads of neighbours, of the paper's Table 1."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to print."""
    parser.add_argument("--fit", action="store_true", help="fit anew, and leave out one model after another (minutes)")
    parser.add_argument(
        "--threads", type=int, default=THREADS, metavar="N",
        help=f"neighbours' threads for the interference table (default {THREADS})",
    )  # fmt: skip
    parser.add_argument(
        "--profiles", type=Path, default=PROFILES, metavar="DIR",
        help="folder of host-loops.toml and host-contention.toml (default: the shipped ones)",
    )  # fmt: skip
    parser.add_argument(
        "--rows", action="store_true", help="say what of the agreement hangs on the row of the longest prompt"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(arguments: argparse.Namespace) -> int:
    """Evaluates and prints."""
    paper = read_paper((PAPERS / "blink.toml").read_text(encoding="utf-8"))
    table = isolated_table(paper)
    try:
        loops = read_host_loops(arguments.profiles)
        contention = contention_of(read_contention(arguments.profiles).rows, arguments.threads)
        fitted = fitted_of(loops) if not arguments.fit else Fit(table, loops).best()
    except (ProfileError, ValueError) as fault:
        raise CommandError(f"reproduce: {fault}", ExitCode.BAD_INPUT) from fault
    if arguments.threads < 1 or contention is None:
        raise CommandError(f"reproduce: --threads {arguments.threads}: at least 1", ExitCode.BAD_INPUT)
    say("isolated: 4 systems, 4 models, 13 rates, 3 seeds")
    alone = isolated(fitted, loops, table)
    say(f"beside {contention.threads} threads of neighbours, as measured")
    beside = interference(fitted, loops, contention, paper)
    others: list[Line] = []
    if arguments.fit:
        say("leaving out one model after another")
        others = left_out(leave_one_out(table, loops), table)
    rows = {row: by_long_row(fitted, loops, table, row) for row in ROWS} if arguments.rows else {}
    if arguments.json:
        whole = _whole(fitted, alone, beside, others)
        if rows:
            whole["rows"] = {str(row): msgspec.to_builtins(agreement(lines)) for row, lines in rows.items()}
        print(json.dumps(whole, indent=1))
    else:
        print("\n".join([*_text(fitted, alone, beside, others, contention.threads), *_by_row(rows)]))
    return ExitCode.PASSED


def _whole(fitted: Fitted, alone: list[Line], beside: list[Line], others: list[Line]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "fitted": msgspec.to_builtins(fitted),
        "isolated": msgspec.to_builtins(alone),
        "agreement": msgspec.to_builtins(agreement(alone)),
        "wrong_orders": wrong_orders(alone),
        "gains": gains(alone),
        "interference": msgspec.to_builtins(beside),
    }
    if others:
        found["left_out"] = msgspec.to_builtins(others)
    return found


def _text(fitted: Fitted, alone: list[Line], beside: list[Line], others: list[Line], threads: int) -> list[str]:
    lines = ["Fitted (all there is)", f"  max_batch  {fitted.max_batch}  Blink; shared by all systems"]
    lines += [f"  engine_time  {model:16}{value:8.3f}  x its table" for model, value in fitted.engine_time.items()]
    lines += [f"  {shape:14} {PART[shape]} {fitted.step_us[shape]:8.0f}   visit_ns {fitted.visit_ns[shape]:6.0f}"
              for shape in SHAPES]  # fmt: skip
    lines += [
        "Chosen",
        f"  rates {', '.join(map(str, RATES))} a second, {len(SEEDS)} seeds, cut off after 60 s",
        "  saturation is the mean of the rates beyond the working range",
        f"  one prompt of {LONG_PROMPT:,} tokens at row {LONG_FIRST} and every {LONG_EVERY} rows"
        + "".join(f", {tokens:,} for {model}" for model, tokens in LONGEST.items() if tokens != LONG_PROMPT),
        "",
        "Isolated, ours / the paper's (TPOT by guidellm's definition)",
        *_table(alone, METRICS),
        "",
        _judged("all", alone, METRICS),
        *(_judged(metric, alone, (metric,)) for metric in METRICS),
        _judged("TPOT by vLLM's definition instead", alone, ("P99 TPOT ms, vLLM's",)),
        f"  orders of two systems that differ from the paper's: {'; '.join(wrong_orders(alone)) or 'none'}",
        "  Blink's saturation over the best other's: "
        + ", ".join(f"{model} {gain:.2f}" for model, gain in gains(alone).items()),
    ]
    if others:
        lines += ["", "Left out: each model from a fit to the others", *_table(others, METRICS),
                  _judged("left out", others, METRICS)]  # fmt: skip
    lines += ["", f"Beside {threads} threads of neighbours, over alone: predicted / the paper's (90 threads, 6 left)",
              *_table(beside, RETAINED)]  # fmt: skip
    return lines


def _by_row(rows: Mapping[int | None, list[Line]]) -> list[str]:
    if not rows:
        return []
    told = {row: "no such prompt" if row is None else f"row {row}" for row in rows}
    return ["", "The longest prompt at another row, nothing fitted anew",
            *(_judged(told[row], lines, METRICS) for row, lines in rows.items())]  # fmt: skip


def _table(lines: Sequence[Line], metrics: Sequence[str]) -> list[str]:
    rows = {(line.model, line.system): {} for line in lines}  # type: dict[tuple[str, str], dict[str, Line]]
    for line in lines:
        rows[line.model, line.system][line.metric] = line
    found = [f"  {'':16}{'':14}" + "".join(f"{metric:>30}" for metric in metrics)]
    found += [
        f"  {model:16}{system:14}" + "".join(f"{_cell(row[metric]):>30}" for metric in metrics)
        for (model, system), row in rows.items()
    ]
    return found


def _cell(line: Line) -> str:
    ours = "none ended" if line.ours is None else f"{line.ours:,.4g}"
    if line.paper is None:
        return f"{ours} / not known"
    error = "" if line.error is None else f" {100 * line.error:+4.0f} %"
    return f"{ours} / {line.paper:,.4g}{error}"


def _judged(name: str, lines: Sequence[Line], metrics: Sequence[str]) -> str:
    found = agreement(lines, metrics)
    return (f"  {name}: {found.within_20_percent} of {found.figures} within 20 %, mean error "
            f"{100 * found.mean_error:.0f} %, worst {100 * found.worst:.0f} %")  # fmt: skip
