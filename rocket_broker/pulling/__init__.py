"""Pulls that wait for messages, and which messages are likely to be in memory."""
