"""Listeners: their declarations, the plans of their arguments, and their invocation."""
