"""The event loops of applications, and the lines of application code that run on them."""
