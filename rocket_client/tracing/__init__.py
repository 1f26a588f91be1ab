"""Message traces: what was sent and consumed, written to a topic of the brokers."""
