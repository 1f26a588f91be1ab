"""Producers of normal and of transactional messages."""
