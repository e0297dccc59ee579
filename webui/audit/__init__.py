"""The audit log: who did what to which thing, when and from where. Written by services, read by admins."""
