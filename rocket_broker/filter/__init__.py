"""Filtering by message properties: RocketMQ's SQL92 expressions, and the filter of each group."""
