"""Pages of accounts: log in, choose a password, API tokens."""

from __future__ import annotations

import math
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from webui.accounts import selectors, services
from webui.accounts.forms import LoginForm, PasswordForm, TokenForm
from webui.accounts.models import User


class Login(LoginView):
    """Asks for user name and password; too many wrong ones have to wait (429)."""

    template_name = "accounts/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Counts failures by name and address around Django's own check."""
        name = request.POST.get("username", "")
        address = request.META.get("REMOTE_ADDR") or None
        until = selectors.login_blocked_until(name=name, address=address)
        if until is not None:
            minutes = max(1, math.ceil((until - timezone.now()).total_seconds() / 60))
            context = self.get_context_data(form=LoginForm(request), blocked_minutes=minutes)
            refusal = render(request, self.template_name, context, status=429)
            refusal.headers["Retry-After"] = str(minutes * 60)
            return refusal
        response = super().post(request, *args, **kwargs)
        if request.user.is_authenticated:
            services.login_succeed(name=name, address=address)
        else:
            services.login_fail(name=name, address=address)
        return response


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    """Choose a password; the only page that a one-time password opens."""
    user = cast(User, request.user)
    forced = user.one_time_password
    form = PasswordForm(request.POST or None, ask_present=not forced)
    if request.method == "POST" and form.is_valid():
        try:
            if not forced and not user.check_password(form.cleaned_data["present"]):
                form.add_error("present", "That is not your present password.")
            else:
                services.user_choose_password(user=user, password=form.cleaned_data["password"])
                update_session_auth_hash(request, user)
                messages.success(request, "Your password is set.")
                return redirect("experiments")
        except services.AccountError as fault:
            form.add_error("password", str(fault))
    status = 422 if form.errors else 200
    return render(request, "accounts/password.html", {"form": form, "forced": forced}, status=status)


@require_http_methods(["GET", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """The user's API tokens. A new secret is in this one answer and nowhere else."""
    user = cast(User, request.user)
    form = TokenForm(request.POST or None)
    secret = None
    if request.method == "POST" and form.is_valid():
        try:
            _, secret = services.token_create(user=user, **form.cleaned_data)
            form = TokenForm()
        except services.AccountError as fault:
            form.add_error(None, str(fault))
    tokens = selectors.token_list(user=user)
    context = {"section": "account", "form": form, "secret": secret, "tokens": tokens}
    return render(request, "accounts/tokens.html", context, status=422 if form.errors else 200)


@require_POST
def token_revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    """Ends a token."""
    if services.token_revoke(user=cast(User, request.user), token_id=token_id):
        messages.success(request, "The token is revoked.")
    else:
        messages.warning(request, "There is no such token of yours, or it was revoked before.")
    return redirect("tokens")
