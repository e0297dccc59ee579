"""Pages of one's own account: sign in and out, password, sessions, API tokens. Of others: `webui.accounts.people`."""

from __future__ import annotations

import math
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webui.accounts import selectors, services
from webui.accounts.forms import ROLES, LoginForm, PasswordForm, TokenForm
from webui.accounts.models import User
from webui.accounts.roles import Role
from webui.accounts.shown_once import secret_put, secret_take
from webui.audit.deeds import Deed
from webui.audit.services import note


def address_of(request: HttpRequest) -> str | None:
    """Of the client, once `proxies.TrustedProxies` has looked at it."""
    return request.META.get("REMOTE_ADDR") or None


class Login(LoginView):
    """Asks for user name and password; too many wrong ones have to wait (429)."""

    template_name = "accounts/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Counts failures by name and address around Django's own check."""
        name, address = request.POST.get("username", ""), address_of(request)
        until = selectors.login_blocked_until(name=name, address=address)
        if until is not None:
            minutes = max(1, math.ceil((until - timezone.now()).total_seconds() / 60))
            context = self.get_context_data(form=LoginForm(request), blocked_minutes=minutes)
            refusal = render(request, self.template_name, context, status=429)
            refusal.headers["Retry-After"] = str(minutes * 60)
            return refusal
        response = super().post(request, *args, **kwargs)
        if request.user.is_authenticated:
            services.session_open(
                session=request.session, address=address, agent=request.META.get("HTTP_USER_AGENT", "")
            )
            services.login_succeed(user=request.user, address=address)
        else:
            services.login_fail(name=name, address=address)
        return response


class Logout(LogoutView):
    """Ends this session."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Notes it and ends it."""
        if request.user.is_authenticated:
            note(Deed.SIGN_OUT, request.user.get_username())
        return super().post(request, *args, **kwargs)


@require_safe
def account(request: HttpRequest) -> HttpResponse:
    """Who one is here, and where one is signed in."""
    user = cast(User, request.user)
    context = {
        "section": "account",
        "part": "account",
        "role_words": ROLES[Role(user.role)].partition(": ")[2],
        "groups": user.groups.order_by("name"),
        "sessions": selectors.session_list(user=user),
        "present": request.session.session_key,
        "tokens": selectors.token_list(user=user).count(),
    }
    return render(request, "accounts/account.html", context)


@require_POST
def session_end(request: HttpRequest, number: str) -> HttpResponseBase:
    """Ends one session, or `all` others."""
    user = cast(User, request.user)
    if number == "others":
        ended = services.session_end_all(user=user, but=request.session.session_key)
        messages.success(request, f"{ended} other session{'' if ended == 1 else 's'} ended.")
    elif services.session_end(user=user, number=number):
        messages.success(request, "The session has ended.")
    else:
        messages.warning(request, "That session had ended already.")
    return redirect("account")


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
                messages.success(request, "Your password is set. Your other sessions have ended.")
                return redirect("experiments" if forced else "account")
        except services.AccountError as fault:
            form.add_error("password", str(fault))
    status = 422 if form.errors else 200
    return render(request, "accounts/password.html", {"form": form, "forced": forced}, status=status)


@require_http_methods(["GET", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """The user's API tokens. A new secret is on the page that follows, once."""
    user = cast(User, request.user)
    form = TokenForm(request.POST or None, role=Role(user.role))
    if request.method == "POST" and form.is_valid():
        try:
            _, secret = services.token_create(user=user, **form.cleaned_data)
            response = HttpResponseRedirect(reverse("tokens"), status=303)
            secret_put(request, response, kind="token", secret=secret)
            return response
        except services.AccountError as fault:
            form.add_error(None, str(fault))
    context = {
        "section": "account",
        "part": "tokens",
        "form": form,
        "secret": secret_take(request, kind="token"),
        "tokens": selectors.token_list(user=user),
    }
    return render(request, "accounts/tokens.html", context, status=422 if form.errors else 200)


@require_POST
def token_revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    """Ends a token."""
    if services.token_revoke(user=cast(User, request.user), token_id=token_id):
        messages.success(request, "The token is revoked.")
    else:
        messages.warning(request, "There is no such token of yours, or it was revoked before.")
    return redirect("tokens")
