"""What is asked beside the experiment itself: where to run, for whom, under which name to find it again."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib.auth.models import Group

from webui.accounts.models import User
from webui.runs.models import Backend, Run, Visibility
from webui.runs.tags import TagFault, read_tags
from webui.runs.wishes import Wishes

LONGEST_TEXT = 200_000


class LaunchForm(forms.Form):
    """Syntax only; whether an experiment can run is for its reader to say, whether a bench takes it for the service."""

    on = forms.ChoiceField(choices=Backend.choices, initial=Backend.SIM)
    overrides = forms.CharField(required=False, strip=False, max_length=20_000)
    spec = forms.CharField(required=False, strip=False, max_length=LONGEST_TEXT)
    tags = forms.CharField(required=False, max_length=400)
    visibility = forms.ChoiceField(choices=Visibility.choices, initial=Visibility.PRIVATE, required=False)
    groups = forms.ModelMultipleChoiceField(queryset=Group.objects.none(), required=False)
    needs = forms.CharField(required=False, max_length=600)
    time_limit_min = forms.FloatField(required=False, min_value=0.2, max_value=1440)

    def __init__(self, *args: Any, user: User, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.fields["groups"].queryset = user.groups.all()  # type: ignore[attr-defined]  # a ModelMultipleChoiceField

    def clean_tags(self) -> list[str]:
        """Tags as the list has them."""
        try:
            return read_tags(self.cleaned_data["tags"])
        except TagFault as fault:
            raise forms.ValidationError(str(fault)) from None

    def clean_needs(self) -> list[str]:
        """Needs as words."""
        return [word for word in re.split(r"[,\s]+", self.cleaned_data["needs"]) if word]

    def wishes(self, *, clone_of: Run | None) -> Wishes:
        """Of a form that is valid."""
        told = self.cleaned_data
        minutes = told["time_limit_min"]
        return Wishes(
            needs=tuple(told["needs"]),
            time_limit_s=None if minutes is None else round(minutes * 60),
            visibility=Visibility(told["visibility"] or Visibility.PRIVATE),
            groups=tuple(told["groups"]) if told["visibility"] == Visibility.GROUPS else (),
            tags=tuple(told["tags"]),
            clone_of=clone_of,
        )
