"""Listeners: their arguments and the outcomes they may return.

::

    listen_concurrently   Success(ack_index)  the messages up to that index (None: all) are done, later ones failed
                          RetryLater(level)   the broker delivers again after a delay; with level 0 the delay grows
                          Reject(cause)       sent to the dead letter topic at once
    listen_orderly        Success()           the messages are done
                          Suspend(seconds)    the queue waits, then the same messages are delivered again
                          Reject(cause)       sent to the dead letter topic at once; the queue goes on

Returning None means `Success()`. An exception is logged and means `RetryLater` or `Suspend` with the exception as its
cause. The constructor of an outcome raises a TypeError for a value of the wrong type. A listener may return a list
with one outcome for each message of its batch. The suspended messages of an orderly batch are delivered again first, in
a batch of their own.
"""

from collections.abc import Awaitable, Callable, Sequence
from types import UnionType
from typing import Final, Protocol

import msgspec

from rocket_remoting.wire.message import MessageExt, MessageQueue

ENDS_THE_PROCESS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions of a listener that are not caught, because they end the process. Any other fails the call."""

_CAUSE: Final = BaseException | str | None


def _expect(outcome: object, name: str, kind: type | UnionType, expected: str) -> None:
    """Check the type of an outcome's field.

    Raises:
        TypeError: The field `name` is not of type `kind`.
    """
    value = getattr(outcome, name)
    if not isinstance(value, kind):
        raise TypeError(f"{type(outcome).__name__}({name}={value!r}): expected {expected}")


class Success(msgspec.Struct, frozen=True):
    """The messages are done. With `ack_index`, only those up to that index of the batch are; the others are retried."""

    ack_index: int | None = None

    def __post_init__(self) -> None:
        _expect(self, "ack_index", int | None, "the index of a message")


class RetryLater(msgspec.Struct, frozen=True):
    """Deliver the messages again after a delay level of the broker; level 0 means 3 + the redeliveries so far."""

    delay_level: int = 0
    cause: BaseException | str | None = None

    def __post_init__(self) -> None:
        _expect(self, "delay_level", int, "the number of a level")
        _expect(self, "cause", _CAUSE, "an exception or text")


class Suspend(msgspec.Struct, frozen=True):
    """Deliver the same messages again after `seconds`; the queue waits. None: `suspend_current_queue_time`."""

    seconds: float | None = None
    cause: BaseException | str | None = None

    def __post_init__(self) -> None:
        _expect(self, "seconds", int | float | None, "a number")
        _expect(self, "cause", _CAUSE, "an exception or text")


class Reject(msgspec.Struct, frozen=True):
    """Send the messages to the dead letter topic, with the cause as a property; do not deliver them again."""

    cause: BaseException | str | None = None

    def __post_init__(self) -> None:
        _expect(self, "cause", _CAUSE, "an exception or text")


SUCCESS = Success()

ConcurrentOutcome = Success | RetryLater | Reject
OrderlyOutcome = Success | Suspend | Reject


class ConsumeContext(msgspec.Struct, frozen=True):
    """The group and queue of a call's messages; one object for all calls of a queue."""

    group: str
    """The group's name as brokers know it, with the namespace."""
    message_queue: MessageQueue
    orderly: bool


class Capacity(Protocol):
    """The number of further calls that a listener can work on now, for a listener whose calls may have to wait.

    Calls begin only while some capacity is free. So messages wait outside of calls, and go to another member together
    with their queue. If they waited inside of calls instead, both members would handle them.
    """

    @property
    def free(self) -> int:
        """The number of further calls that can begin to work now."""

    def watch(self, on_free: Callable[[], None]) -> None:
        """Call ``on_free`` on the event loop whenever capacity becomes free and is not taken at once."""

    def unwatch(self, on_free: Callable[[], None]) -> None:
        """Stop calling ``on_free``."""


ConcurrentListener = Callable[
    [list[MessageExt], ConsumeContext], Awaitable[ConcurrentOutcome | Sequence[ConcurrentOutcome] | None]
]
OrderlyListener = Callable[
    [list[MessageExt], ConsumeContext], Awaitable[OrderlyOutcome | Sequence[OrderlyOutcome] | None]
]
