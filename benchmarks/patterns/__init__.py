"""What the outbox, idempotent listeners and the local store cost, on the databases that they work with."""
