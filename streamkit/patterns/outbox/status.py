"""The six statuses of an outbox's row."""

from enum import StrEnum

__all__ = ["OPEN", "OVER_LIMITS", "MessageStatus"]


class MessageStatus(StrEnum):
    """What is known about a message of the outbox.

    A row begins as NOT_CONSUMED and keeps that status when its message has been sent: only an answer of the consumer
    changes it.
    """

    NOT_CONSUMED = "NOT_CONSUMED"
    """No consumer has confirmed the message."""
    CONSUMED = "CONSUMED"
    """The consumer has done its work."""
    CONSUMPTION_FAILED = "CONSUMPTION_FAILED"
    """The consumer's last attempt failed; it tries again."""
    CONSUMPTION_RETRIES_EXCEEDED = "CONSUMPTION_RETRIES_EXCEEDED"
    """The consumer has given the message up."""
    CONFIRMATION_RETRIES_EXCEEDED = "CONFIRMATION_RETRIES_EXCEEDED"
    """The message was sent as often as is allowed, and was neither stored nor confirmed."""
    ROLLED_BACK = "ROLLED_BACK"
    """A person has given the message up: the sender's work is undone."""


OPEN = (MessageStatus.NOT_CONSUMED, MessageStatus.CONSUMPTION_FAILED)
"""The statuses of rows about which the consumer is asked."""

OVER_LIMITS = (MessageStatus.CONSUMPTION_RETRIES_EXCEEDED, MessageStatus.CONFIRMATION_RETRIES_EXCEEDED)
"""The statuses of rows that wait for a person."""
