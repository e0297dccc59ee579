"""How pages write states, sizes and moments. Words always stand beside colour."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.template import Context
from django.urls import reverse
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
    """A link of the navigation, marked where one is."""
    address = reverse(name)
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
def millis(value: float | None) -> str:
    """Milliseconds with about three digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
