"""Pages about other people: users and groups. Admins have all of it, instructors the groups they are in."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from webui.accounts import groups, selectors, services
from webui.accounts.callers import caller_of
from webui.accounts.forms import GroupForm, MemberForm, PersonForm, QuotaForm, StandingForm
from webui.accounts.gate import needs
from webui.accounts.models import Quota, User
from webui.accounts.roles import Right, Role
from webui.accounts.services import AccountError
from webui.accounts.shown_once import secret_put, secret_take

PAGE = 50


def _person(name: str) -> User:
    user = selectors.user_get(name=name)
    if user is None:
        raise Http404(name)
    return user


def _to_person(user: User) -> HttpResponseRedirect:
    return HttpResponseRedirect(reverse("person", args=[user.username]), status=303)


@needs(Right.ADMINISTER)
@require_http_methods(["GET", "POST"])
def people(request: HttpRequest) -> HttpResponse:
    """Everybody, searched and paged by the address; the form that makes somebody."""
    form = PersonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user, password = services.user_create(name=form.cleaned_data["name"], role=Role(form.cleaned_data["role"]))
        except AccountError as fault:
            form.add_error("name", str(fault))
        else:
            for group in form.cleaned_data.get("groups", []):
                groups.group_add(group=group, user=user)
            response = _to_person(user)
            secret_put(request, response, kind=f"password {user.pk}", secret=password)
            return response
    told = request.GET
    text = told.get("text", "").replace("\x00", "")[:100]
    role = told.get("role", "") if told.get("role", "") in list(Role) else ""
    found = selectors.user_list(text=text, role=role, closed=True if told.get("closed") else None)
    context = {
        "section": "account",
        "part": "people",
        "form": form,
        "page": Paginator(found, PAGE).get_page(told.get("page")),
        "text": text,
        "role": role,
        "closed": bool(told.get("closed")),
        "roles": list(Role),
    }
    return render(request, "accounts/people.html", context, status=422 if form.errors else 200)


@needs(Right.ADMINISTER)
@require_http_methods(["GET", "POST"])
def person(request: HttpRequest, name: str) -> HttpResponse:
    """One person: role and groups are changed here, the rest beside it."""
    user = _person(name)
    initial = {"role": user.role, "groups": user.groups.all()}
    form = StandingForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            services.user_change_role(user=user, role=Role(form.cleaned_data["role"]))
        except AccountError as fault:
            form.add_error("role", str(fault))
        else:
            _put_into(user, list(form.cleaned_data["groups"]))
            messages.success(request, f"{user.username} is {user.role}.")
            return _to_person(user)
    return _show_person(request, user, form, _quota_form(user), status=422 if form.errors else 200)


def _put_into(user: User, wanted: list[Group]) -> None:
    for group in user.groups.exclude(pk__in=[group.pk for group in wanted]):
        groups.group_drop(group=group, user=user)
    for group in wanted:
        groups.group_add(group=group, user=user)


def _quota_form(user: User, data: Any = None) -> QuotaForm:
    row = Quota.objects.filter(user=user).first()
    initial = {name: getattr(row, name) for name in services.QUOTA_FIELDS} if row else {}
    return QuotaForm(data, defaults=settings.QUOTA, initial=initial)


def _show_person(
    request: HttpRequest, user: User, form: StandingForm, quota: QuotaForm, *, status: int
) -> HttpResponse:
    context = {
        "section": "account",
        "part": "people",
        "person": user,
        "form": form,
        "quota_form": quota,
        "groups_exist": Group.objects.exists(),
        "is_self": user.pk == caller_of(request).user.pk,
        "secret": secret_take(request, kind=f"password {user.pk}"),
        "sessions": selectors.session_list(user=user).count(),
        "tokens": selectors.token_list(user=user),
    }
    return render(request, "accounts/person.html", context, status=status)


@needs(Right.ADMINISTER)
@require_POST
def person_quota(request: HttpRequest, name: str) -> HttpResponse:
    """The person's own limits."""
    user = _person(name)
    form = _quota_form(user, request.POST)
    if not form.is_valid():
        standing = StandingForm(initial={"role": user.role, "groups": user.groups.all()})
        return _show_person(request, user, standing, form, status=422)
    if services.user_change_quota(user=user, quota=form.cleaned_data):
        messages.success(request, f"The limits of {user.username} are set.")
    return _to_person(user)


@needs(Right.ADMINISTER)
@require_POST
def person_password(request: HttpRequest, name: str) -> HttpResponse:
    """A one-time password to hand over."""
    user = _person(name)
    response = _to_person(user)
    if user.pk == caller_of(request).user.pk:
        messages.warning(request, "Change your own password on your account page.")
    else:
        secret_put(request, response, kind=f"password {user.pk}", secret=services.user_reset_password(user=user))
    return response


@needs(Right.ADMINISTER)
@require_POST
def person_sessions(request: HttpRequest, name: str) -> HttpResponse:
    """Ends all sessions of the person."""
    user = _person(name)
    ended = services.session_end_all(user=user, but=request.session.session_key)
    messages.success(request, f"{ended} session{'' if ended == 1 else 's'} of {user.username} ended.")
    return _to_person(user)


@needs(Right.ADMINISTER)
@require_POST
def person_token(request: HttpRequest, name: str, token_id: int) -> HttpResponse:
    """Revokes a token of the person."""
    user = _person(name)
    if services.token_revoke(user=user, token_id=token_id):
        messages.success(request, "The token is revoked.")
    return _to_person(user)


@needs(Right.ADMINISTER)
@require_POST
def person_close(request: HttpRequest, name: str) -> HttpResponse:
    """Closes the account, or opens it again (`open=1`)."""
    user = _person(name)
    try:
        if request.POST.get("open"):
            services.user_open(user=user)
            messages.success(request, f"{user.username} may sign in again.")
        elif user.pk == caller_of(request).user.pk:
            messages.warning(request, "You cannot close your own account. Ask another admin.")
        else:
            services.user_close(user=user)
            ends = "sessions, tokens, live pages and queued runs end"
            messages.success(request, f"The account of {user.username} is closed: {ends}.")
    except AccountError as fault:
        messages.warning(request, str(fault))
    return _to_person(user)


# --- groups ----------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
def group_list(request: HttpRequest) -> HttpResponse:
    """The groups one has to do with; an admin makes them here."""
    caller = caller_of(request)
    may_make = caller.may(Right.ADMINISTER)
    form = GroupForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and may_make and form.is_valid():
        try:
            group = groups.group_create(name=form.cleaned_data["name"])
            return HttpResponseRedirect(reverse("group", args=[group.pk]), status=303)
        except AccountError as fault:
            form.add_error("name", str(fault))
    elif request.method == "POST" and not may_make:
        raise PermissionDenied
    context = {
        "section": "account",
        "part": "groups",
        "form": form if may_make else None,
        "groups": selectors.group_list(caller=caller),
    }
    return render(request, "accounts/groups.html", context, status=422 if form.errors else 200)


def _group(request: HttpRequest, group_id: int, *, to_change: bool = False) -> Group:
    caller = caller_of(request)
    group = selectors.group_get(group_id=group_id, caller=caller)
    if group is None:
        raise Http404(group_id)
    if to_change and not selectors.group_may_change(caller=caller, group=group):
        raise PermissionDenied
    return group


@require_http_methods(["GET", "POST"])
def group(request: HttpRequest, group_id: int) -> HttpResponse:
    """One group and its members; POST takes somebody in."""
    found = _group(request, group_id, to_change=request.method == "POST")
    caller = caller_of(request)
    form = MemberForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        name = form.cleaned_data["name"]
        user = selectors.user_get(name=name)
        try:
            if user is None:
                raise AccountError(f"There is no user {name!r}.")
            added = groups.group_add(group=found, user=user, caller=caller)
            messages.success(request, f"{name} is {'now' if added else 'already'} in {found.name}.")
            return redirect("group", group_id=found.pk)
        except AccountError as fault:
            form.add_error("name", str(fault))
    may_change = selectors.group_may_change(caller=caller, group=found)
    context = {
        "section": "account",
        "part": "groups",
        "group": found,
        "members": selectors.group_members(group=found),
        "form": form if may_change else None,
        "rename_form": GroupForm(initial={"name": found.name}, auto_id="rename_%s"),
    }
    return render(request, "accounts/group.html", context, status=422 if form.errors else 200)


@require_POST
def group_drop(request: HttpRequest, group_id: int, name: str) -> HttpResponse:
    """Takes somebody out."""
    found = _group(request, group_id, to_change=True)
    user = selectors.group_members(group=found).filter(username=name).first()
    if user is None or not groups.group_drop(group=found, user=user):
        messages.warning(request, f"{name} was not in {found.name}.")
    else:
        messages.success(request, f"{name} is no longer in {found.name}.")
    return redirect("group", group_id=found.pk)


@needs(Right.ADMINISTER)
@require_POST
def group_rename(request: HttpRequest, group_id: int) -> HttpResponse:
    """Another name."""
    found = _group(request, group_id)
    try:
        groups.group_rename(group=found, name=request.POST.get("name", ""))
    except AccountError as fault:
        messages.warning(request, str(fault))
    return redirect("group", group_id=found.pk)


@needs(Right.ADMINISTER)
@require_POST
def group_remove(request: HttpRequest, group_id: int) -> HttpResponse:
    """The end of the group."""
    found = _group(request, group_id)
    name = found.name
    groups.group_remove(group=found)
    messages.success(request, f"The group {name} is gone. Runs that were shared with it are no longer.")
    return redirect("groups")
