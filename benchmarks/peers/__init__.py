"""Clients, listeners and binders beside those of other systems, each on a server of its own, in one run."""
