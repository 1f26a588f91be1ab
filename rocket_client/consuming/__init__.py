"""Consumers: a member's share of the queues, pulls, listener calls, offsets."""
