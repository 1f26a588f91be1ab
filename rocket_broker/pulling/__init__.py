"""Held pull requests, and the rule for which messages are in memory."""
