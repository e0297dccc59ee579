"""Reading run folders: outcome, summary, plan, files to download, trials. Writes nothing.

A run folder may be half written, of another version or gone: every function answers with what is there.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings

from testbed.experiment.run_folder import RUN_ID, RunFolder, RunFolderError
from webui.runs.states import Outcome, State

TRIAL = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._=+-]{0,99}\Z")
SUMMARY_LIMIT = 256 * 1024
"""Bytes of JSON that a row takes of a summary; of a longer one it takes less, and says what it left out."""
LONGEST_SUMMARY = 64 << 20
"""Bytes of a summary.json that is read at all: a thousand trials have about a tenth."""
LEAST_NEEDED = ("windows", "front_end", "definitions", "send_lag_ms")
"""Parts of each system in a summary in the order in which they are left out; the console shows none of them."""
VERDICT = ("run", "outcome", "detail", "clock", "dilation", "byte_scale", "format")
"""What is kept of a summary of any length, beside the fidelity's verdict."""


@dataclass(frozen=True)
class Word:
    """What a run folder says about how the run stands (control/outcome.json)."""

    state: State
    outcome: Outcome | None
    detail: str


@dataclass(frozen=True)
class Download:
    """A file of a run folder that people may fetch."""

    path: str
    """Relative to the run folder."""
    title: str
    size_bytes: int


def folder_of(run_id: str) -> Path:
    """Where the run's folder is, or will be. Raises ValueError for a text that is no run id."""
    if not RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is no run id")
    return Path(settings.RUNS_FOLDER) / run_id


def read_json(path: Path, *, limit: int = 8 << 20) -> dict[str, Any] | None:
    """The object in a JSON file, or None if it is missing, too long, half written or no object.

    Also None where a database would not keep it: NaN and infinities, half a surrogate pair, the NUL character.
    """
    try:
        if path.stat().st_size > limit:
            return None
        text = path.read_bytes()
        value = None if b"\\u0000" in text else msgspec.json.decode(text)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def word_of(run_id: str) -> Word | None:
    """What the folder reports, or None while it says nothing that we understand."""
    data = read_json(folder_of(run_id) / "control" / "outcome.json")
    if data is None:
        return None
    try:
        state = State(str(data.get("state", "")))
        outcome = Outcome(str(data["outcome"])) if data.get("outcome") else None
    except ValueError:
        return None
    if (state is State.FINISHED) != (outcome is not None):
        return None
    return Word(state, outcome, str(data.get("detail") or ""))


def summary_of(run_id: str) -> dict[str, Any]:
    """summary.json for the row, or an empty object. Where it is shortened, `left_out` names what is missing."""
    return shortened(read_json(folder_of(run_id) / "summary.json", limit=LONGEST_SUMMARY) or {})


def shortened(summary: dict[str, Any]) -> dict[str, Any]:
    """`summary` as it is if it fits `SUMMARY_LIMIT`; otherwise without its bulk, the least needed left out first."""
    told, left_out = summary, []
    for part in LEAST_NEEDED:
        if _fits(told):
            return told
        left_out.append(f"systems.*.{part}")
        systems = told.get("systems")
        if isinstance(systems, dict):
            told = told | {"systems": {name: _without(figures, part) for name, figures in systems.items()}}
        told = told | {"left_out": left_out}
    for part in ("shares", "trials", "systems"):
        if _fits(told):
            return told
        left_out.append(part)
        told = _without(told, part) | {"left_out": left_out}
    if _fits(told):
        return told
    verdict = {name: summary[name] for name in VERDICT if name in summary}
    fidelity = summary.get("fidelity")
    if isinstance(fidelity, dict):
        verdict["fidelity"] = {"verdict": fidelity.get("verdict"), "reasons": [], "thresholds": [], "note": ""}
    return verdict | {"left_out": [*left_out, "expectations", "fidelity.reasons", "fidelity.thresholds"]}


def _fits(told: dict[str, Any]) -> bool:
    return len(json.dumps(told)) <= SUMMARY_LIMIT


def _without(told: Any, part: str) -> Any:
    return {name: value for name, value in told.items() if name != part} if isinstance(told, dict) else told


def trials_of(run_id: str) -> list[str]:
    """Labels of the trials, in the order in which they were planned; empty for a run that is a single trial itself."""
    folder = RunFolder(folder_of(run_id))
    try:
        names = [trial.name for trial in folder.trials()] if folder.trials_folder.is_dir() else []
    except (OSError, RunFolderError):
        return []
    return [name for name in names if TRIAL.match(name)]


def trials_begun(run_id: str, trials: list[str]) -> int:
    """How many of `trials`, in their order, have begun to log. Looks at a few of them: they run one after another."""
    root = folder_of(run_id) / "trials"
    return bisect_left(trials, 1, key=lambda label: 0 if any((root / label / "events").glob("*.jsonl")) else 1)


def trial_folder(run_id: str, trial: str) -> Path:
    """The folder of one trial; of the run itself where `trial` is empty. Raises ValueError for an odd label."""
    folder = folder_of(run_id)
    if not trial:
        return folder
    if not TRIAL.match(trial):
        raise ValueError(f"{trial!r} is no trial label")
    return folder / "trials" / trial


def plan_of(folder: Path) -> dict[str, Any]:
    """plan.json of a run or trial folder as plain data, or an empty object."""
    return read_json(folder / "plan.json") or {}


_NAMED = (
    ("report/index.html", "Report"),
    ("summary.json", "Summary, JSON"),
    ("spec.toml", "Experiment, TOML"),
    ("plan.json", "Plan, JSON"),
    ("provenance.json", "Provenance, JSON"),
)
_GLOBS = (("captures/*.pcap", "Capture"), ("events/*.jsonl", "Events"))
_DOWNLOADABLE = re.compile(
    r"\A(?:trials/[A-Za-z0-9][A-Za-z0-9._=+-]{0,99}/)?"
    r"(?:report/index\.html|summary\.json|spec\.toml|spec\.json|plan\.json|provenance\.json"
    r"|captures/[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.pcap|events/[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.jsonl)\Z"
)
"""Names, not patterns of a shell: nothing else of a run folder is ever served, and no part may start with a dot."""


def downloads_of(run_id: str, trial: str = "") -> list[Download]:
    """The files that are there to be fetched, report first."""
    root = folder_of(run_id)
    folder = trial_folder(run_id, trial)
    if folder == root:
        found = [(root / name, title) for name, title in _NAMED]
    else:  # plan and provenance are the trial's, the rest the whole run's
        found = [((folder if name.startswith("p") else root) / name, title) for name, title in _NAMED]
    for pattern, title in _GLOBS:
        found += [(path, f"{title} {path.stem}") for path in sorted(folder.glob(pattern))]
    answer = []
    for path, title in found:
        try:
            answer.append(Download(str(path.relative_to(root)), title, path.stat().st_size))
        except OSError:
            continue
    return [item for item in answer if _DOWNLOADABLE.match(item.path)]


def download_path(run_id: str, name: str) -> Path | None:
    """The file behind a download's address, or None: unknown names, links out of the folder, missing files."""
    root = folder_of(run_id)
    if not _DOWNLOADABLE.match(name):
        return None
    path = root / name
    if not path.is_file() or not path.resolve().is_relative_to(root.resolve()):
        return None
    return path
