"""How pages write states, sizes and moments. Words always stand beside colour."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from webui.runs.models import Run
from webui.runs.states import ACTIVE, Outcome, State

register = template.Library()

OUTCOMES: dict[str, tuple[str, str]] = {
    Outcome.PASSED: ("ok", "ok"),
    Outcome.FAILED: ("bad", "bad"),
    Outcome.ERRORED: ("bad", "bad"),
    Outcome.CANCELLED: ("idle", "idle"),
    Outcome.LOST: ("warn", "warn"),
}
"""Tone and icon of each outcome, in one place for all pages."""
STATES: dict[str, tuple[str, str]] = {State.QUEUED: ("idle", "wait"), **dict.fromkeys(ACTIVE, ("run", "run"))}
FIDELITIES: dict[str, tuple[str, str]] = {
    "faithful": ("ok", "ok"),
    "degraded": ("warn", "warn"),
    "invalid": ("bad", "bad"),
}


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon of the sprite in base.html; decoration, since words stand beside it."""
    moves = " live" if name == "run" else ""
    return format_html('<svg class="i{}" aria-hidden="true"><use href="#i-{}"></use></svg>', moves, name)


@register.simple_tag(takes_context=True)
def place(context: Context, name: str, words: str) -> SafeString:
    """A link of the navigation, marked where one is; nothing if this console has no such page."""
    try:
        address = reverse(name)
    except NoReverseMatch:
        return SafeString("")
    path = context["request"].path
    here = SafeString(' aria-current="page"') if path == address or path.startswith(f"{address}/") else ""
    return format_html('<a href="{}"{}>{}</a>', address, here, words)


def _mark(tone: str, name: str, words: str) -> SafeString:
    return format_html('<span class="st plain {}">{} {}</span>', tone, icon(name), words)


@register.simple_tag
def standing(run: Run) -> SafeString:
    """State and outcome of a run, short."""
    if run.is_finished:
        tone, name = OUTCOMES.get(run.outcome, ("idle", "idle"))
        return _mark(tone, name, f"Finished, {run.outcome}")
    if run.is_cancelling:
        return _mark("warn", "run", "Cancelling")
    tone, name = STATES.get(run.state, ("idle", "wait"))
    return _mark(tone, name, run.state.capitalize())


@register.simple_tag
def fidelity(run: Run) -> SafeString:
    """The fidelity verdict of a run."""
    if run.backend == "sim":
        return _mark("idle", "clock", "modelled time")
    if not run.fidelity:
        return _mark("idle", "idle", "not judged" if run.is_finished else "not judged yet")
    tone, name = FIDELITIES.get(run.fidelity, ("idle", "idle"))
    return _mark(tone, name, run.fidelity)


@register.simple_tag
def outcome_mark(outcome: str) -> SafeString:
    """An outcome by itself, as of one trial."""
    tone, name = OUTCOMES.get(outcome, ("idle", "idle"))
    return _mark(tone, name, outcome or "not judged")


@register.simple_tag
def verdict_mark(verdict: str) -> SafeString:
    """A fidelity verdict by itself, as of one trial."""
    tone, name = FIDELITIES.get(verdict, ("idle", "idle"))
    return _mark(tone, name, verdict or "not judged")


@register.filter
def size(value: int) -> str:
    """Bytes for people."""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


@register.filter
def moment(value: datetime | None) -> SafeString | str:
    """A moment as `<time>`: hours and minutes today, the date before; the exact one in the tip. UTC throughout."""
    if value is None:
        return ""
    now = timezone.now()
    words = f"{value:%H:%M}" if value.date() == now.date() else f"{value:%-d %b, %H:%M}"
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>', value.isoformat(), f"{value:%Y-%m-%d %H:%M:%S}", words
    )


@register.filter
def took(run: Run) -> str:
    """How long a run has taken so far, or took."""
    begin = run.started_at or run.created_at
    seconds = max(0, int(((run.finished_at or timezone.now()) - begin).total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


@register.filter
def system_figures(run: Run) -> list[dict[str, Any]]:
    """The median latencies of each system in a run's summary, for a card; none if there is no summary."""
    systems = run.summary.get("systems")
    if not isinstance(systems, dict):
        return []
    rows = []
    # In the experiment's order: PostgreSQL's jsonb does not keep that of the summary.
    place = {name: number for number, name in enumerate(run.systems)}
    ordered = sorted(systems.items(), key=lambda item: (place.get(item[0].partition(" ")[0], len(place)), item[0]))
    for name, figures in ordered[:4]:
        row: dict[str, Any] = {"name": str(name)}
        for metric in ("ttft_ms", "tpot_ms", "itl_ms"):
            told = figures.get(metric) if isinstance(figures, dict) else None
            for percentile in ("p50", "p99"):
                value = told.get(percentile) if isinstance(told, dict) else None
                row[f"{metric}_{percentile}"] = value if isinstance(value, int | float) else None
        rows.append(row)
    return rows


@register.filter
def millis(value: float | None) -> str:
    """Milliseconds with about three digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@register.simple_tag
def dot_rows(rows: list[dict[str, Any]]) -> SafeString:
    """Each system's median first-token latency as a dot on one axis from 0, with a line to its p99."""
    told = [row for row in rows if row["ttft_ms_p50"] is not None]
    if not told:
        return format_html('<p class="none">{}</p>', "Its last run completed no request.")
    top = max(row["ttft_ms_p99"] or row["ttft_ms_p50"] for row in told) * 1.08 or 1.0
    parts = []
    for place, row in enumerate(told):
        y = place * 22 + 12
        x = 92 + row["ttft_ms_p50"] / top * 134
        far = 92 + (row["ttft_ms_p99"] or row["ttft_ms_p50"]) / top * 134
        parts.append(
            format_html(
                '<text x="0" y="{}">{}</text><line class="axis" x1="92" x2="226" y1="{}" y2="{}"/>'
                '<line class="range s{}" x1="{}" x2="{}" y1="{}" y2="{}"/>'
                '<circle class="s{}" cx="{}" cy="{}" r="4.5" stroke-width="2"/>'
                '<text class="v" x="270" y="{}" text-anchor="end">{} ms</text>',
                *(y + 4, row["name"], y, y, place, f"{x:.1f}", f"{far:.1f}", y, y),
                *(place, f"{x:.1f}", y, y + 4, millis(row["ttft_ms_p50"])),
            )
        )
    return format_html(
        '<svg class="dots" viewBox="0 0 270 {}" width="100%" role="img" aria-label="{}">{}</svg>',
        len(told) * 22 + 2,
        ", ".join(f"{row['name']} {millis(row['ttft_ms_p50'])} ms" for row in told),
        SafeString("".join(parts)),
    )
