"""What a listener is given and what it may answer.

::

    listen_concurrently   Success(ack_index)  the messages up to that index (None: all) are done, later ones failed
                          RetryLater(level)   to be delivered again after a delay; level 0 grows each time
                          Reject(cause)       to the dead letter topic at once
    listen_orderly        Success()           done
                          Suspend(seconds)    the queue waits, then the same messages come again
                          Reject(cause)       to the dead letter topic at once, and the queue goes on

Returning None is `Success()`. An exception is `RetryLater` or `Suspend` with the exception as its cause,
and logged. A listener may return a list with one outcome for each message of its batch; of an orderly one those
that are suspended come again first, in a batch of their own.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rocket_remoting.message import MessageExt, MessageQueue


@dataclass(frozen=True, slots=True)
class Success:
    """The messages are done; with `ack_index`, those after it in the batch failed and are retried later."""

    ack_index: int | None = None


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Deliver the messages again: after the broker's delay level, 0 meaning 3 + the redeliveries so far."""

    delay_level: int = 0
    cause: BaseException | str | None = None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Let the queue wait, then try the same messages again; None: `suspend_current_queue_time`."""

    seconds: float | None = None
    cause: BaseException | str | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Never deliver the messages again: they go to the dead letter topic, telling the cause."""

    cause: BaseException | str | None = None


SUCCESS = Success()

ConcurrentOutcome = Success | RetryLater | Reject
OrderlyOutcome = Success | Suspend | Reject


@dataclass(frozen=True, slots=True)
class ConsumeContext:
    """Where the messages of a call come from; one object for all calls of a queue."""

    group: str
    message_queue: MessageQueue
    orderly: bool


ConcurrentListener = Callable[
    [list[MessageExt], ConsumeContext], Awaitable[ConcurrentOutcome | Sequence[ConcurrentOutcome] | None]
]
OrderlyListener = Callable[
    [list[MessageExt], ConsumeContext], Awaitable[OrderlyOutcome | Sequence[OrderlyOutcome] | None]
]
