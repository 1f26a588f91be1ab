"""Listeners: how they are declared, what their arguments are, and how they are called."""
