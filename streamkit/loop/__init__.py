"""The event loops that applications run on, and which line of their code is at work."""
