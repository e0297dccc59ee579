"""Webhooks: a signed POST to an address of the owner's when one of their runs changes."""
