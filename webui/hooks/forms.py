"""The form of a webhook: syntax only; where a message may go is for `destinations` to say."""

from __future__ import annotations

from django import forms

from webui.hooks.events import OF_RUNS, HookEvent

_WORDS = {
    HookEvent.QUEUED: "a run of mine is queued",
    HookEvent.STARTED: "it starts",
    HookEvent.FINISHED: "it ends, however",
    HookEvent.VERDICT: "it was judged, with its expectations",
}


class HookForm(forms.Form):
    """A new webhook."""

    url = forms.CharField(
        label="Address", max_length=500, widget=forms.URLInput(attrs={"placeholder": "https://ci.example.org/looplane"})
    )
    events = forms.MultipleChoiceField(
        label="Tell it when",
        choices=[(event.value, _WORDS[event]) for event in OF_RUNS],
        initial=[HookEvent.FINISHED.value],
        widget=forms.CheckboxSelectMultiple,
    )
