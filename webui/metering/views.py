"""/metrics, for Prometheus: with the installation's scrape token, or the session of an admin.

Not "from this machine only": behind a reverse proxy everybody comes from this machine.
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from webui.accounts.callers import by_session
from webui.accounts.roles import Right
from webui.metering.exposition import exposition

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The figures; 401 for everybody else."""
    if not (_has_token(request) or _is_admin(request)):
        answer = HttpResponse("Send the scrape token: docs/guide/api.md, Metrics.\n", "text/plain", status=401)
        answer.headers["WWW-Authenticate"] = 'Bearer realm="looplane metrics"'
        return answer
    return HttpResponse(exposition(), content_type=CONTENT_TYPE)


def _has_token(request: HttpRequest) -> bool:
    kind, _, told = request.headers.get("Authorization", "").partition(" ")
    return kind.lower() == "bearer" and secrets.compare_digest(told.strip().encode(), settings.SCRAPE_TOKEN.encode())


def _is_admin(request: HttpRequest) -> bool:
    user = request.user
    return user.is_authenticated and not user.one_time_password and by_session(user).may(Right.ADMINISTER)
