"""Limits for clients: quotas, rates, and refusals."""
