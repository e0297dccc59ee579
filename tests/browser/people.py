"""Run as a program on a console's state folder: makes a person of each role, in one group, and logs them all in.

Prints `{role: cookies}` as JSON. Sessions are made by Django itself, so the log-in page is met by its own tests alone.
"""

from __future__ import annotations

import json
import os
import sys

NAMES = {"viewer": "vera", "runner": "rune", "instructor": "ines", "admin": "ada", "outsider": "otto"}
"""By what they are; the outsider is a runner who is in no group."""
GROUP = "class-a"


def main(address: str, password: str) -> None:
    """Users, their group, and their cookies for `address`."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
    import django

    django.setup()
    from django.contrib.auth.models import Group
    from django.test import Client

    from webui.accounts.models import User

    group, _ = Group.objects.get_or_create(name=GROUP)
    cookies: dict[str, list[dict[str, str]]] = {}
    for what, name in NAMES.items():
        user = User(username=name, role="runner" if what == "outsider" else what)
        user.set_password(password)
        user.save()
        if what in ("viewer", "runner", "instructor"):
            user.groups.add(group)
        client = Client()
        client.force_login(user)
        cookies[what] = [{"name": key, "value": morsel.value, "url": address} for key, morsel in client.cookies.items()]
    json.dump(cookies, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
