"""The forms of accounts."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm


class LoginForm(AuthenticationForm):
    """User name and password, with the hints browsers need to fill them in."""

    error_messages = {
        "invalid_login": "That user name and password do not belong together. Caps Lock?",
        "inactive": "This account has been closed. Ask an admin of this console.",
    }


class PasswordForm(forms.Form):
    """A new password; the present one is asked for unless it is a one-time one that was just used."""

    present = forms.CharField(
        label="Present password", widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}), strip=False
    )
    password = forms.CharField(
        label="New password",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        strip=False,
        help_text="At least 10 characters, no common one.",
    )
    again = forms.CharField(
        label="New password again", widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}), strip=False
    )

    def __init__(self, *args: Any, ask_present: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not ask_present:
            del self.fields["present"]

    def clean_again(self) -> str:
        """Refuses two different passwords."""
        again: str = self.cleaned_data["again"]
        if self.cleaned_data.get("password") not in (None, again):
            raise forms.ValidationError("The two passwords differ.")
        return again


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(label="What is it for?", max_length=60, help_text="For example: nightly regression in CI.")
    days = forms.IntegerField(label="Valid for days", min_value=1, max_value=366, initial=90)
