"""Filtering by message properties: RocketMQ's SQL92 expressions, and what each group filters by."""
