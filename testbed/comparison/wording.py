"""Figures, units and metrics as people read them. Pure."""

from __future__ import annotations

import re

from testbed.experiment.metric_paths import METRICS

_UNITS: tuple[tuple[str, str], ...] = (
    (r"_ms(\.|$)", "ms"), (r"_us(\.|$)", "µs"), (r"tokens_per_s$", "tokens/s"), (r"_s(\.|$)", "s"),
    (r"mj_per_token$", "mJ/token"), (r"_watts$", "W"), (r"_percent$", "percent"), (r"bytes$", "bytes"),
    (r"\.rate$", "/s"), (r"per_s\.", "/s"),
)  # fmt: skip
_SHARES = re.compile(
    r"\.(share|busy|busiest|loaded|least|most|hit_rate|decode_share|in_objectives|computing|kv_kept|floor|counted)$"
)
_LARGER: dict[str, tuple[tuple[str, float], ...]] = {
    "ms": (("s", 1e3),),
    "µs": (("s", 1e6), ("ms", 1e3)),
    "bytes": (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)),
}
_SHORT = {
    "ttft_ms": ("TTFT", "time to first token"),
    "ttst_ms": ("Second token", "time from first to second token"),
    "tpot_ms": ("TPOT", "time per output token"),
    "itl_ms": ("ITL", "time between tokens"),
}
_STATISTICS = {
    "mean": "mean", "p50": "median", "p90": "p90", "p99": "p99", "p999": "p99.9", "worst": "largest",
}  # fmt: skip
_NAMES: dict[str, tuple[str, str]] = {
    "throughput_tokens_per_s": ("Throughput", "throughput"),
    "requests.completed": ("Requests answered", "number of answered requests"),
    "requests.failed": ("Requests failed", "number of failed requests"),
    "jct.total_s": ("Job completion time", "job completion time"),
    "jct.in_objectives": ("Turns within the objectives", "share of turns within the objectives"),
    "paths.hit_rate": ("Prompt tokens found in storage", "share of prompt tokens found in storage"),
    "snic.max_over_avg.1s": ("Storage NICs, busiest over mean", "busiest storage NIC over the mean"),
    "engines.pe.busy": ("Prefill engines at work", "share of time in which prefill engines compute"),
    "engines.de.busy": ("Decode engines at work", "share of time in which decode engines compute"),
    "energy.mj_per_token": ("Energy per token, modelled", "modelled energy per token"),
    "host.step_us.mean": ("Host work of a step, mean", "mean host work of a step"),
    "host.launch_gap_us.mean": ("Gap between launches, mean", "mean gap between launches"),
    "recovery.service_back_ms.mean": ("Service back after a death, mean", "mean time until service is back"),
    "isolation.bursts_us.p99": ("Collective beside KV, p99", "p99 time of a collective beside KV"),
}
"""In a table, and in a sentence; every other metric has the words of `METRICS`."""
_COUNT_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def unit_of_metric(path: str) -> str:
    """The unit in which a summary has this metric: "share" for one between 0 and 1, empty for a plain number."""
    if path.endswith(".n"):
        return ""
    if _SHARES.search(path):
        return "share"
    return next((unit for pattern, unit in _UNITS if re.search(pattern, path)), "")


def title_of(path: str) -> str:
    """A metric in a table: short where everybody knows the short name."""
    head, _, last = path.rpartition(".")
    if head in _SHORT and last in _STATISTICS:
        return f"{_SHORT[head][0]}, {_STATISTICS[last]}"
    if path in _NAMES:
        return _NAMES[path][0]
    told = METRICS.get(path) or path.replace("_", " ").replace(".", ", ")
    return told[:1].upper() + told[1:]


def sentence_of(path: str) -> str:
    """A metric in a sentence, as "mean time to first token"."""
    head, _, last = path.rpartition(".")
    if head in _SHORT and last in _STATISTICS:
        return f"{_STATISTICS[last]} {_SHORT[head][1]}"
    return _NAMES[path][1] if path in _NAMES else METRICS.get(path, path)


def figure(value: float | None, unit: str = "") -> str:
    """A value and its unit, with about three digits; milliseconds become seconds from 1,000 on."""
    if value is None:
        return "–"
    shown, by = _written_in(value, unit)
    return f"{digits(value / by)} {shown}".rstrip()


def _written_in(value: float, unit: str) -> tuple[str, float]:
    """The unit for people, and what a value is divided by for it."""
    if unit in ("share", "percent"):
        return "%", 0.01 if unit == "share" else 1.0
    if unit in _LARGER:
        for name, size in _LARGER[unit]:
            if abs(value) >= size:
                return name, size
    return unit, 1.0


def between(low: float, high: float, like: float, unit: str = "") -> str:
    """A range in the unit in which `figure` writes `like`, without repeating it."""
    _, by = _written_in(like, unit)
    return f"[{digits(low / by)}, {digits(high / by)}]"


def digits(value: float) -> str:
    """About three digits, whole numbers as they are."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 0.001:
        return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"
    return f"{value:.2g}"


def signed(value: float, unit: str = "") -> str:
    """As `figure`, with a sign that lines up with the other."""
    return f"{'+' if value > 0 else '−' if value < 0 else '±'}{figure(abs(value), unit)}"


def percent(relative: float) -> str:
    """A relative change: whole percent, tenths where they are all there is, times where it more than triples."""
    if relative >= 2:
        return f"×{digits(float(f'{relative + 1:.2g}'))}"
    size = abs(relative) * 100
    return f"{'+' if relative > 0 else '−' if relative < 0 else '±'}{size:.0f} %" if size >= 1 else _tenths(relative)


def _tenths(relative: float) -> str:
    size = abs(relative) * 100
    if size == 0:
        return "±0 %"
    return f"{'+' if relative > 0 else '−'}{size:.1f} %" if size >= 0.05 else "under 0.1 %"


def several(count: int, thing: str) -> str:
    """As "five repeats", "one repeat"."""
    said = _COUNT_WORDS[count] if count < len(_COUNT_WORDS) else f"{count:,}"
    return f"{said} {thing}{'' if count == 1 else 's'}"
