"""The ASGI application: HTTP by Django, the live stream by Channels. No channel layer; a stream tails the run's log."""

# mypy: disable-error-code="no-untyped-call"
# channels has no types of its own.
from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")

from django.core.asgi import get_asgi_application

_http = get_asgi_application()  # loads the apps, which the imports below need

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402
from channels.sessions import SessionMiddlewareStack  # noqa: E402

from webui.bodies import BodyLimit  # noqa: E402
from webui.runs.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(_http),
        "websocket": AllowedHostsOriginValidator(SessionMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
