"""Producers: one send with its attempts, and transactions."""
