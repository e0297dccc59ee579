"""All events of one request, in order: from the file that was made with the run's pack, or by a search of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from testbed.events.log import log_files
from webui.runs.folder import trial_folder
from webui.runs.pack_stories import StoryFault, keys_of, story_lines
from webui.runs.packs import pack_path, packs_forget

LONGEST_NAME = 300

_decode = msgspec.json.Decoder().decode


def story_of(run_id: str, trial: str, *, request: int | None, name: str) -> bytes:
    """Event lines of the request that the server numbers `request` and its client calls `name`, by (t, node, seq).

    Either may be missing. Raises ValueError for an odd run id or trial label.
    """
    keys = [f"r{request}"] if request is not None else []
    keys += [f"n{name}"] if name else []
    pack = pack_path(run_id, trial)
    lines: list[bytes]
    try:
        lines = story_lines(pack.with_suffix(".stories"), keys) if pack is not None else []
    except StoryFault:  # made again by the next page that asks for the pack
        packs_forget(run_id)
        lines = []
    except OSError:
        lines = []
    if not lines:
        lines = list(_searched(trial_folder(run_id, trial) / "events", keys))
    found = {(event["t"], event["node"], event["seq"]): line for line in lines for event in [_decode(line)]}
    return b"".join(found[place] for place in sorted(found))


def _searched(events: Path, keys: list[str]) -> Iterator[bytes]:
    """A look at the bytes first: only lines that may be meant are decoded."""
    wanted = set(keys)
    numbers = [b'"request":%d%s' % (int(key[1:]), end) for key in keys if key[0] == "r" for end in (b",", b"}")]
    needles = numbers + [json.dumps(key[1:], ensure_ascii=False).encode() for key in keys if key[0] == "n"]
    for path in log_files(events):
        with path.open("rb", buffering=1 << 20) as file:
            for line in file:
                if not any(needle in line for needle in needles) or not line.endswith(b"\n"):
                    continue
                try:
                    if wanted.intersection(keys_of(_decode(line))):
                        yield line
                except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, AttributeError):
                    continue
