"""Connections to name servers and brokers: routes, heartbeats, requests in both directions."""
