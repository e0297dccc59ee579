"""`python -m webui.api.document`: prints the OpenAPI description. Needs neither a database nor a state folder."""

from __future__ import annotations

import json
import os
import sys
import tempfile


def main() -> None:
    """JSON on standard output, the same bytes every time."""
    with tempfile.TemporaryDirectory(prefix="looplane-openapi-") as state:
        # Settings read the environment; nothing of an installation that may be here goes into a description.
        os.environ |= {"LOOPLANE_STATE": state, "DJANGO_SETTINGS_MODULE": "webui.settings"}
        for name in ("DATABASE_URL", "REDIS_URL", "LOOPLANE_HTTPS"):
            os.environ.pop(name, None)
        import django

        django.setup()
        from webui.api.api import api

        json.dump(api.get_openapi_schema(), sys.stdout, indent=1, ensure_ascii=False)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
