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
from streamkit.errors import (
    AllHandlersFailed,
    MessageConversionError,
    MessageDeliveryError,
    MessageHandlingError,
)
from streamkit.messaging.cause import kind_and_text

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

_WRAPPERS: Final = (MessageHandlingError, MessageDeliveryError)
"""What channels make of a handler's exception."""


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

        The exception's classes are looked up from the nearest to the farthest, then those of its cause; what is said of
        every `Exception` is said of the one that was raised, not of what wraps it. A group, such as `asyncio.TaskGroup`
        raises, is retried if all that is in it is; what several handlers raised in turn, if any of it is, since one
        that succeeds is enough. A payload that cannot be converted will be the same the next time, so it is not
        retried unless listed.
        """
        return self._is_retryable(error, frozenset())

    def _is_retryable(self, error: BaseException, above: frozenset[int]) -> bool:
        for cause in causes(error):
            if id(cause) in above:  # who raises one of a group `from` the group makes a ring
                break
            listed = self._listed(cause)
            if listed is not None:
                return listed
            if isinstance(cause, BaseExceptionGroup | AllHandlersFailed):
                above |= {id(cause)}
                members = [self._is_retryable(each, above) for each in cause.exceptions]
                return any(members) if isinstance(cause, AllHandlersFailed) else all(members)
        return self.default_retryable

    def _listed(self, error: BaseException) -> bool | None:
        """What is said of the nearest of its classes."""
        for kind in type(error).__mro__:
            if kind in (Exception, BaseException) and _stands_for_another(error):
                return None
            listed = self.retryable.get(kind, _ALWAYS_THE_SAME.get(kind))
            if listed is not None:
                return listed
        return None

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
    while type(error) in _WRAPPERS and error.__cause__ is not None:
        error = error.__cause__
    return error


def _stands_for_another(error: BaseException) -> bool:
    """Whether the exception only says that there are others."""
    is_wrapper = type(error) in _WRAPPERS and error.__cause__ is not None
    return is_wrapper or isinstance(error, BaseExceptionGroup | AllHandlersFailed)


def after_failure(delivery: Delivery, redeliveries: int, cause: BaseException, retryable: bool) -> Settlement:
    """Return what becomes of a message whose calls of this delivery all failed."""
    reason = kind_and_text(cause)
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
