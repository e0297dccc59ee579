"""Addresses of the console."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView

from webui.api.api import api
from webui.api.views import api_manual
from webui.runs.share_page import run_share_form


@login_not_required
@require_safe
def health(_request: HttpRequest) -> HttpResponse:
    """For the supervisor: the process answers."""
    return HttpResponse("ok", content_type="text/plain")


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="experiments"), name="home"),
    path("healthz", health, name="health"),
    path("api/v1/docs", api_manual, name="api-manual"),
    path("api/v1/", api.urls),
    path("", include("webui.metering.urls")),
    path("", include("webui.hooks.urls")),
    path("", include("webui.accounts.urls")),
    path("", include("webui.audit.urls")),
    path("", include("webui.benches.urls")),
    path("", include("webui.catalogue.urls")),
    path("", include("webui.compare.urls")),
    path("runs/<str:run_id>/share", run_share_form, name="run-share"),
    path("", include("webui.runs.urls")),
    path("", include("webui.runs.pack_urls")),
]

handler400 = "webui.api.errors.bad_request"
handler403 = "webui.api.errors.forbidden"
handler404 = "webui.api.errors.not_found"
handler500 = "webui.api.errors.server_error"
