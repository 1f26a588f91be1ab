"""What connections stand on: TCP, or memory for tests under virtual time."""
