"""Transports of connections: TCP, and memory for tests under virtual time."""
