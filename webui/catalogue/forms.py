"""The launch form: where to run, what to change, and (for an experiment of one's own) the text itself."""

from __future__ import annotations

from django import forms

from webui.runs.models import Backend


class LaunchForm(forms.Form):
    """Syntax only; whether an experiment can run is for the experiment reader to say."""

    on = forms.ChoiceField(choices=Backend.choices, initial=Backend.SIM)
    overrides = forms.CharField(required=False, strip=False, max_length=20_000, widget=forms.Textarea)
    spec = forms.CharField(required=False, strip=False, max_length=200_000, widget=forms.Textarea)

    def override_lines(self) -> list[str]:
        """`key=value` texts; empty lines and comments are for people."""
        lines = [line.strip() for line in self.cleaned_data["overrides"].splitlines()]
        return [line for line in lines if line and not line.startswith("#")]
