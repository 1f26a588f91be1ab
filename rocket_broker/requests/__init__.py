"""Serving of requests: dispatch by code, handling in steps, and refusal of late requests."""
