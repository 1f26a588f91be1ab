"""Connections: requests and responses, limits, fairness among clients."""
