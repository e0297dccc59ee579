"""Forms of benches. Syntax only; what is allowed is for the services to say."""

from __future__ import annotations

from django import forms


class LeaseForm(forms.Form):
    """Take a bench."""

    minutes = forms.IntegerField(min_value=1, max_value=100_000, label="Minutes", initial=60)
    purpose = forms.CharField(
        required=False, max_length=120, label="What for", help_text="Others see it beside your name."
    )


class MinutesForm(forms.Form):
    """Extend a lease or a run."""

    minutes = forms.IntegerField(min_value=1, max_value=100_000)


class TagsForm(forms.Form):
    """A bench's tags."""

    tags = forms.CharField(
        required=False,
        max_length=700,
        label="Tags",
        help_text="Words that runs may ask for, separated by blanks: lab-2 connectx. Those that its worker was started "
        "with stay.",
    )
