"""Pages of webhooks: one's own with a form for a new one, and the messages of each."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webui.accounts.callers import caller_of
from webui.accounts.gate import needs
from webui.accounts.roles import Right
from webui.accounts.shown_once import secret_put, secret_take
from webui.hooks import selectors, services
from webui.hooks.forms import HookForm
from webui.hooks.models import Webhook

SHOWN = 50


def _find(request: HttpRequest, hook_id: int) -> Webhook:
    hook = selectors.hook_get(owner=caller_of(request).user, hook_id=hook_id)
    if hook is None:
        raise Http404
    return hook


@require_http_methods(["GET", "POST"])
@needs(Right.START)
def hooks(request: HttpRequest) -> HttpResponse:
    """One's webhooks. A new secret is on the page that follows, once."""
    owner = caller_of(request).user
    form = HookForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            _, secret = services.hook_create(owner=owner, **form.cleaned_data)
            response = HttpResponseRedirect(reverse("hooks"), status=303)
            secret_put(request, response, kind="hook", secret=secret)
            return response
        except services.HookError as fault:
            form.add_error(fault.field or None, str(fault))
    context = {
        "section": "account",
        "part": "hooks",
        "form": form,
        "secret": secret_take(request, kind="hook"),
        "hooks": selectors.hook_list(owner=owner),
    }
    return render(request, "hooks/hooks.html", context, status=422 if form.errors else 200)


@require_safe
@needs(Right.START)
def hook(request: HttpRequest, hook_id: int) -> HttpResponse:
    """One webhook and its messages, the newest first."""
    found = _find(request, hook_id)
    deliveries = selectors.delivery_list(hook=found).select_related("run")[:SHOWN]
    context = {"section": "account", "part": "hooks", "hook": found, "deliveries": deliveries}
    return render(request, "hooks/hook.html", context)


@require_POST
@needs(Right.START)
def hook_remove(request: HttpRequest, hook_id: int) -> HttpResponse:
    """Ends it."""
    services.hook_remove(hook=_find(request, hook_id))
    messages.success(request, "The webhook is removed.")
    return redirect("hooks")


@require_POST
@needs(Right.START)
def hook_switch(request: HttpRequest, hook_id: int) -> HttpResponse:
    """On or off."""
    found = _find(request, hook_id)
    try:
        services.hook_change(hook=found, is_active=not found.is_active)
    except services.HookError as fault:
        messages.warning(request, str(fault))
    return redirect("hook", hook_id=hook_id)


@require_POST
@needs(Right.START)
def hook_ping(request: HttpRequest, hook_id: int) -> HttpResponse:
    """A test message."""
    services.hook_ping(hook=_find(request, hook_id))
    messages.info(request, "A test message is on its way; reload in a few seconds to see what became of it.")
    return redirect("hook", hook_id=hook_id)


@require_POST
@needs(Right.START)
def hook_again(request: HttpRequest, hook_id: int, delivery_id: int) -> HttpResponse:
    """One message once more."""
    delivery = selectors.delivery_get(hook=_find(request, hook_id), delivery_id=delivery_id)
    if delivery is None:
        raise Http404
    services.delivery_again(delivery=delivery)
    messages.info(request, "The message is sent again; reload in a few seconds to see what became of it.")
    return redirect("hook", hook_id=hook_id)
