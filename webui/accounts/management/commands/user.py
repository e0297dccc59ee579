"""`manage.py user first|create|change|password|close|open`: accounts from the shell; prints one JSON object."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from webui.accounts import groups, services
from webui.accounts.models import User
from webui.accounts.roles import Role

ACTIONS = ("first", "create", "change", "password", "close", "open")


class Command(BaseCommand):
    """Doorway to the services of accounts."""

    help = "Makes and changes users, gives one-time passwords. Prints {user, password, role, groups} as JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """An action and, but for `first`, a user name."""
        parser.add_argument("action", choices=ACTIONS)
        parser.add_argument("name", nargs="?")
        roles = [role.value for role in Role]
        parser.add_argument("--role", choices=roles, help="with `create` (default runner) and `change`")
        parser.add_argument("--group", action="append", default=[], metavar="NAME", help="takes the user into it")
        parser.add_argument("--no-group", action="append", default=[], metavar="NAME", help="takes the user out of it")
        parser.add_argument(
            "--quota", action="append", default=[], metavar="FIELD=N", help=f"of {', '.join(services.QUOTA_FIELDS)}"
        )
        parser.add_argument("--new-password", action="store_true", help="with `first`: replace the chosen password")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does one action, whole or not at all."""
        action, name = options["action"], options["name"]
        if (action == "first") == bool(name):
            raise CommandError("`first` takes no user name, the other actions take one")
        try:
            with transaction.atomic():
                user, password = self._act(action, name, options)
                self._place(user, options)
        except services.AccountError as fault:
            raise CommandError(str(fault)) from None
        except User.DoesNotExist:
            raise CommandError(f"there is no user {name!r}") from None
        told: dict[str, Any] = {"user": user.username, "password": password, "role": user.role}
        told["groups"] = list(user.groups.order_by("name").values_list("name", flat=True))
        self.stdout.write(json.dumps(told))

    def _act(self, action: str, name: str, options: dict[str, Any]) -> tuple[User, str | None]:
        if action == "first":
            return services.user_first(new_password=options["new_password"])
        if action == "create":
            return services.user_create(name=name, role=Role(options["role"] or Role.RUNNER))
        user = User.objects.get(username=name)
        if action == "password":
            return user, services.user_reset_password(user=user)
        if action == "close":
            services.user_close(user=user)
        elif action == "open":
            services.user_open(user=user)
        elif options["role"]:
            services.user_change_role(user=user, role=Role(options["role"]))
        return user, None

    def _place(self, user: User, options: dict[str, Any]) -> None:
        for name in options["group"]:
            group = Group.objects.filter(name=name).first() or groups.group_create(name=name)
            groups.group_add(group=group, user=user)
        for name in options["no_group"]:
            left = Group.objects.filter(name=name).first()
            if left is None or not groups.group_drop(group=left, user=user):
                raise services.AccountError(f"{user.username} is not in a group {name!r}")
        quota = dict(_limit(text) for text in options["quota"])
        if quota:
            services.user_change_quota(user=user, quota=quota)


def _limit(text: str) -> tuple[str, int | None]:
    """Of `queued_runs=5`; an empty number takes the console's."""
    name, equals, value = text.partition("=")
    good = value.isascii() and value.isdecimal() and len(value) <= 7
    if name not in services.QUOTA_FIELDS or not equals or not (good or not value):
        allowed = ", ".join(services.QUOTA_FIELDS)
        raise services.AccountError(f"--quota {text!r}: FIELD=N, a field of {allowed}, N from 0 to 9999999")
    return name, int(value) if value else None
