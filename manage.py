"""Django's own commands (migrate, check, shell) for the console; `./looplane up` uses them as the service user."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
