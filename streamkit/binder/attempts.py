"""How often a message is tried, where and when: the same formula on every binder.

::

    first delivery     up to max-attempts calls in this process, with a growing pause between them
    each redelivery    one call
    redeliveries       up to the binding's limit (max-reconsume-times; unset: 16 concurrent, unbounded
                       ordered), then the dead letter, with the cause
    not retryable      the dead letter at once

The header ``deliveryAttempt`` counts the calls over all deliveries.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from streamkit.binder.delivery import Delivery
from streamkit.binder.settlement import RejectMessage, Retry, Settlement
from streamkit.errors import MessageConversionError, MessageDeliveryError, MessageHandlingError

__all__ = ["BackOff", "RetryPolicy", "after_failure", "after_requeue", "causes", "unwrapped"]


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pauses between attempts in process, in seconds: 1, 2, 4, 8, 10, 10, ... by default."""

    initial: float = 1.0
    multiplier: float = 2.0
    maximum: float = 10.0

    def pause(self, failures: int) -> float:
        """Return the pause after the ``failures``-th failed call, counted from 1."""
        try:
            return min(self.initial * self.multiplier ** (failures - 1), self.maximum)
        except OverflowError:
            return self.maximum


_ALWAYS_THE_SAME: Final[Mapping[type[BaseException], bool]] = {MessageConversionError: False}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a binding's failures are retried in process.

    Attributes:
        max_attempts: Calls of the first delivery, the first one included.
        back_off: The pauses between them.
        retryable: Exceptions, with their subclasses, that are retried or not.
        default_retryable: Whether those that are not listed are.
    """

    max_attempts: int = 3
    back_off: BackOff = field(default_factory=BackOff)
    retryable: Mapping[type[BaseException], bool] = field(default_factory=dict)
    default_retryable: bool = True

    def is_retryable(self, error: BaseException) -> bool:
        """Return whether another call may help.

        The exception's classes are looked up from the nearest to the farthest, then those of its cause. A
        payload that cannot be converted will be the same the next time, so it is not retried unless listed.
        """
        for cause in causes(error):
            for kind in type(cause).__mro__:
                listed = self.retryable.get(kind, _ALWAYS_THE_SAME.get(kind))
                if listed is not None:
                    return listed
        return self.default_retryable

    def calls(self, redeliveries: int) -> range:
        """Return the values of ``deliveryAttempt`` of the calls that a delivery may make."""
        if redeliveries == 0:
            return range(1, self.max_attempts + 1)
        number = self.max_attempts + redeliveries
        return range(number, number + 1)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def unwrapped(error: BaseException) -> BaseException:
    """Return what was raised at first, without the channel's wrapping."""
    while type(error) in (MessageHandlingError, MessageDeliveryError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def after_failure(delivery: Delivery, redeliveries: int, cause: BaseException, retryable: bool) -> Settlement:
    """Return what becomes of a message whose calls of this delivery all failed."""
    reason = f"{type(cause).__name__}: {cause}"
    if not retryable:
        return RejectMessage(reason, cause)
    if delivery.redelivery_level < 0 and not delivery.ordered:
        return RejectMessage(f"redelivery is turned off for this binding; {reason}", cause)
    return after_requeue(delivery, redeliveries, Retry(None, cause), reason)


def after_requeue(delivery: Delivery, redeliveries: int, retry: Retry, reason: str) -> Settlement:
    """Return ``retry``, or the dead letter when the limit of redeliveries is reached."""
    limit = delivery.redelivery_limit
    if limit is None or redeliveries < limit:
        return retry
    return RejectMessage(f"given up after {redeliveries} redeliveries; {reason}", retry.cause)
