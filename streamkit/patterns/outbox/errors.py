"""The error of an outbox."""

from streamkit.errors import StreamkitError

__all__ = ["OutboxError"]


class OutboxError(StreamkitError):
    """A message cannot be put into the outbox, or an operation on its rows is not possible."""
