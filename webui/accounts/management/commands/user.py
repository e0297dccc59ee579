"""`manage.py user first|create|password|disable`: accounts from the shell; prints one JSON object."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webui.accounts import services
from webui.accounts.models import User
from webui.accounts.roles import Role


class Command(BaseCommand):
    """Doorway to the services of accounts."""

    help = "Makes users, gives one-time passwords, closes accounts. Prints {user, password} as JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """An action and, but for `first`, a user name."""
        parser.add_argument("action", choices=["first", "create", "password", "disable"])
        parser.add_argument("name", nargs="?")
        roles = [role.value for role in Role]
        parser.add_argument("--role", choices=roles, default=Role.RUNNER.value, help="with `create`; default runner")
        parser.add_argument("--new-password", action="store_true", help="with `first`: replace the chosen password")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does one action."""
        action, name = options["action"], options["name"]
        if (action == "first") == bool(name):
            raise CommandError("`first` takes no user name, the other actions take one")
        try:
            user, password = self._act(action, name, options)
        except services.AccountError as fault:
            raise CommandError(str(fault)) from None
        except User.DoesNotExist:
            raise CommandError(f"there is no user {name!r}") from None
        self.stdout.write(json.dumps({"user": user.username, "password": password}))

    def _act(self, action: str, name: str, options: dict[str, Any]) -> tuple[User, str | None]:
        if action == "first":
            return services.user_first(new_password=options["new_password"])
        if action == "create":
            return services.user_create(name=name, role=Role(options["role"]))
        user = User.objects.get(username=name)
        if action == "password":
            return user, services.user_reset_password(user=user)
        services.user_disable(user=user)
        return user, None
