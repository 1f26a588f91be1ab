"""What a listener is given and what it may answer.

::

    listen_concurrently   Success(ack_index)  the messages up to that index (None: all) are done, later ones failed
                          RetryLater(level)   to be delivered again after a delay; level 0 grows each time
                          Reject(cause)       to the dead letter topic at once
    listen_orderly        Success()           done
                          Suspend(seconds)    the queue waits, then the same messages come again
                          Reject(cause)       to the dead letter topic at once, and the queue goes on

Returning None is `Success()`. An exception is `RetryLater` or `Suspend` with the exception as its cause,
and logged; an outcome with a wrong value raises a TypeError where it is made. A listener may return a list with one
outcome for each message of its batch; of an orderly one those that are suspended come again first, in a batch of their
own.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Final, Protocol

from rocket_remoting.wire.message import MessageExt, MessageQueue

ENDS_THE_PROCESS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What a listener raises that is meant for more than its call; anything else is a failure of the call."""

_CAUSE: Final = BaseException | str | None


def _expect(outcome: object, name: str, kind: type | UnionType, expected: str) -> None:
    """Refuse an outcome whose field of that name is of another kind.

    Raises:
        TypeError: It is.
    """
    value = getattr(outcome, name)
    if not isinstance(value, kind):
        raise TypeError(f"{type(outcome).__name__}({name}={value!r}): expected {expected}")


@dataclass(frozen=True, slots=True)
class Success:
    """The messages are done; with `ack_index`, those after it in the batch failed and are retried later."""

    ack_index: int | None = None

    def __post_init__(self) -> None:
        _expect(self, "ack_index", int | None, "the index of a message")


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Deliver the messages again: after the broker's delay level, 0 meaning 3 + the redeliveries so far."""

    delay_level: int = 0
    cause: BaseException | str | None = None

    def __post_init__(self) -> None:
        _expect(self, "delay_level", int, "the number of a level")
        _expect(self, "cause", _CAUSE, "an exception or text")


@dataclass(frozen=True, slots=True)
class Suspend:
    """Let the queue wait, then try the same messages again; None: `suspend_current_queue_time`."""

    seconds: float | None = None
    cause: BaseException | str | None = None

    def __post_init__(self) -> None:
        _expect(self, "seconds", int | float | None, "a number")
        _expect(self, "cause", _CAUSE, "an exception or text")


@dataclass(frozen=True, slots=True)
class Reject:
    """Never deliver the messages again: they go to the dead letter topic, telling the cause."""

    cause: BaseException | str | None = None

    def __post_init__(self) -> None:
        _expect(self, "cause", _CAUSE, "an exception or text")


SUCCESS = Success()

ConcurrentOutcome = Success | RetryLater | Reject
OrderlyOutcome = Success | Suspend | Reject


@dataclass(frozen=True, slots=True)
class ConsumeContext:
    """Where the messages of a call come from; one object for all calls of a queue."""

    group: str
    """As brokers know it."""
    message_queue: MessageQueue
    orderly: bool


class Room(Protocol):
    """How many further calls can do their work now, where a listener lets calls wait.

    Calls begin only while there is room. What waits for room outside of a call is left alone when its queue goes to
    another member; what waits inside of one is handled by both.
    """

    @property
    def free(self) -> int:
        """Room for so many."""

    def watch(self, on_free: Callable[[], None]) -> None:
        """Have ``on_free`` called, on the loop, whenever there is room again that nobody took."""

    def unwatch(self, on_free: Callable[[], None]) -> None:
        """Have ``on_free`` called no more."""


ConcurrentListener = Callable[
    [list[MessageExt], ConsumeContext], Awaitable[ConcurrentOutcome | Sequence[ConcurrentOutcome] | None]
]
OrderlyListener = Callable[
    [list[MessageExt], ConsumeContext], Awaitable[OrderlyOutcome | Sequence[OrderlyOutcome] | None]
]
