"""Delayed messages by level: where they wait, and what brings them to their topic when they are due."""
