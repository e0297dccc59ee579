"""The forms of accounts."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import Group

from webui.accounts.roles import Right, Role, Scope, rights
from webui.accounts.services import QUOTA_FIELDS, TOKEN_DAYS

SCOPES = {
    Scope.READ: "read: see what you may see",
    Scope.RUN: "run: also start and end runs, lease benches",
    Scope.ADMIN: "admin: also people and benches",
}
ROLES = {
    Role.VIEWER: "viewer: sees what is shared with them",
    Role.RUNNER: "runner: also starts runs and leases benches",
    Role.INSTRUCTOR: "instructor: also sees the runs of their groups and says who is in them",
    Role.ADMIN: "admin: everything",
}
QUOTA_LABELS = {
    "queued_runs": "Runs waiting",
    "active_runs": "Runs under way",
    "bench_minutes_per_day": "Minutes of emulation a day",
    "run_minutes": "Minutes of one run",
    "lease_minutes": "Minutes of one lease",
}


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
        max_length=200,
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
    scopes = forms.MultipleChoiceField(
        label="It may",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Tick at least one."},
    )
    days = forms.IntegerField(label="Valid for days", min_value=1, max_value=366, initial=TOKEN_DAYS)

    def __init__(self, *args: Any, role: Role, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        useful = [scope for scope in Scope if scope is Scope.READ or _adds(role, scope)]
        field = self.fields["scopes"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(scope.value, SCOPES[scope]) for scope in useful]
        field.initial = [scope.value for scope in useful if scope is not Scope.ADMIN]

    def clean_scopes(self) -> list[Scope]:
        """As the service takes them."""
        return [Scope(value) for value in self.cleaned_data["scopes"]]


def _adds(role: Role, scope: Scope) -> bool:
    """Whether the scope gives a person of this role what it is for."""
    return {Scope.RUN: Right.START, Scope.ADMIN: Right.ADMINISTER}[scope] in rights(role, [scope])


class PersonForm(forms.Form):
    """Somebody new."""

    name = forms.CharField(label="User name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField(label="Role", choices=[(role.value, words) for role, words in ROLES.items()])
    groups = forms.ModelMultipleChoiceField(
        label="Groups", queryset=Group.objects.order_by("name"), required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].initial = Role.RUNNER.value
        if not Group.objects.exists():
            del self.fields["groups"]


class StandingForm(forms.Form):
    """Role and groups of somebody."""

    role = forms.ChoiceField(label="Role", choices=[(role.value, words) for role, words in ROLES.items()])
    groups = forms.ModelMultipleChoiceField(
        label="Groups", queryset=Group.objects.order_by("name"), required=False, widget=forms.CheckboxSelectMultiple
    )


class QuotaForm(forms.Form):
    """Somebody's own limits; an empty field takes the console's."""

    def __init__(self, *args: Any, defaults: dict[str, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in QUOTA_FIELDS:
            self.fields[name] = forms.IntegerField(
                label=QUOTA_LABELS[name],
                min_value=0,
                max_value=1_000_000,
                required=False,
                widget=forms.NumberInput(attrs={"placeholder": str(defaults[name])}),
            )


class GroupForm(forms.Form):
    """A group's name."""

    name = forms.CharField(
        label="Name of the group", max_length=60, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )


class MemberForm(forms.Form):
    """Somebody to take into a group."""

    name = forms.CharField(label="User name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "off"}))
