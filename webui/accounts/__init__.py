"""Who may use the console: users, their API tokens, and the throttle on logging in."""
