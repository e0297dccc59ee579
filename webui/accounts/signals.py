"""What other apps hear of accounts. They depend on accounts, never the other way, so they are told and not called."""

from __future__ import annotations

from django.dispatch import Signal

account_closed = Signal()
"""Sent with `user` in the transaction that closes the account: what a receiver does happens with it or not at all."""
