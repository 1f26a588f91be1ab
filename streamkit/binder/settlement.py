"""What becomes of a delivered message: ``Accept``, ``Retry`` or ``RejectMessage``.

The framework decides a settlement, the binder carries it out and nothing more: attempts, limits and error
channels lie behind the receiver a binder calls. See :mod:`streamkit.binder.binder`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from streamkit.errors import expect

__all__ = ["ACCEPT", "RETRY", "Accept", "RejectMessage", "Retry", "Settlement"]


@dataclass(frozen=True, slots=True)
class Accept:
    """The message is done: its place in the group moves on."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The message is delivered again, to any member of the group.

    Attributes:
        after: How long to wait at least; ``None`` leaves it to the binding's redelivery delays
            (:meth:`streamkit.binder.delivery.Delivery.redelivery_delay`). A binder that only knows a table
            of delays takes the shortest one that is not shorter.
        cause: What failed, for the binder to keep with the message.
    """

    after: timedelta | None = None
    cause: BaseException | None = None

    def __post_init__(self) -> None:
        expect("Retry", "after", self.after, timedelta)
        expect("Retry", "cause", self.cause, BaseException)


@dataclass(frozen=True, slots=True)
class RejectMessage:
    """The message goes to the dead letter destination of its group, with its cause, and is never retried.

    Attributes:
        reason: Why, in one line.
        cause: The exception behind it, if there is one.
    """

    reason: str
    cause: BaseException | None = None

    def __post_init__(self) -> None:
        expect("RejectMessage", "reason", self.reason, str, required=True)
        expect("RejectMessage", "cause", self.cause, BaseException)


Settlement: TypeAlias = Accept | Retry | RejectMessage

ACCEPT: Final = Accept()
RETRY: Final = Retry()
