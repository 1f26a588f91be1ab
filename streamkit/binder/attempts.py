"""The number of calls of a message and their times: the same formula on every binder.

::

    first delivery     up to max-attempts calls in this process, with a growing pause between them
    each redelivery    one call
    redeliveries       up to the binding's limit (max-reconsume-times; unset: 16 in concurrent mode, no limit
                       in ordered mode), then a dead letter with the cause
    not retryable      a dead letter at once

The header ``deliveryAttempt`` counts the calls over all deliveries. With ``max-attempts=3``::

    delivery           first            1st redelivery    2nd redelivery
    deliveryAttempt    1, 2, 3          4                 5
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from streamkit.binder.delivery import Delivery
from streamkit.errors import (
    AllHandlersFailed,
    MessageConversionError,
    MessageDeliveryError,
    MessageHandlingError,
)
from streamkit.messaging.cause import kind_and_text
from streamkit.settlement import Reject, Requeue, Settlement

__all__ = ["BackOff", "RetryPolicy", "after_failure", "after_requeue", "causes", "unwrapped"]


class BackOff(msgspec.Struct, frozen=True):
    """The pauses between attempts in process, in seconds: 1, 2, 4, 8, 10, 10, ... by default.

    Attributes:
        initial: The first pause, in seconds.
        multiplier: The factor from one pause to the next.
        maximum: The longest pause, in seconds.
    """

    initial: float = 1.0
    multiplier: float = 2.0
    maximum: float = 10.0

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after the ``failures``-th failed call, counted from 1."""
        try:
            return min(self.initial * self.multiplier ** (failures - 1), self.maximum)
        # 2.0 ** 1024 is beyond the largest float.
        except OverflowError:
            return self.maximum


_RETRYABLE_UNLESS_LISTED: Final[Mapping[type[BaseException], bool]] = {MessageConversionError: False}
"""Whether exceptions of a class are retried if `RetryPolicy.retryable` does not list the class."""

_WRAPPERS: Final = (MessageHandlingError, MessageDeliveryError)
"""The exceptions in which channels wrap a handler's exception."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The attempts of a binding in process.

    Attributes:
        max_attempts: The largest number of calls of the first delivery, including the first call.
        back_off: The pauses between calls.
        retryable: Exception classes, each with whether it and its subclasses are retried.
        default_retryable: Whether exceptions of other classes are retried.
    """

    max_attempts: int = 3
    back_off: BackOff = field(default_factory=BackOff)
    retryable: Mapping[type[BaseException], bool] = field(default_factory=dict)
    default_retryable: bool = True

    def is_retryable(self, error: BaseException) -> bool:
        """Return whether another call may succeed.

        The classes of the exception are looked up in `retryable`, along its MRO; if none is listed, the classes of its
        cause, and so on. An entry for `Exception` or `BaseException` applies to the handler's exception, not to a
        channel's wrapper around it. An exception group, as `asyncio.TaskGroup` raises, is retried if all its members
        are. `AllHandlersFailed` is retried if any of its exceptions is, because one successful handler is enough.
        `MessageConversionError` is not retried unless it is listed: the same payload would fail again.
        """
        return self._is_retryable(error, frozenset())

    def _is_retryable(self, error: BaseException, above: frozenset[int]) -> bool:
        for cause in causes(error):
            if id(cause) in above:  # `raise member from group` makes a cycle of the group and its member
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
        """Return the entry for the nearest class in the exception's MRO, or None."""
        for kind in type(error).__mro__:
            if kind in (Exception, BaseException) and _is_wrapper(error):
                return None
            listed = self.retryable.get(kind, _RETRYABLE_UNLESS_LISTED.get(kind))
            if listed is not None:
                return listed
        return None

    def calls(self, redeliveries: int) -> range:
        """Return the values of ``deliveryAttempt`` for the calls that a delivery may make.

        Args:
            redeliveries: The number of earlier redeliveries; 0 for the first delivery.
        """
        if redeliveries == 0:
            return range(1, self.max_attempts + 1)
        # The first delivery counts as `max_attempts` calls, even if it made fewer: a redelivery may come to another
        # process, and binders pass on only the number of redeliveries.
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
    """Return the handler's exception, without the wrappers that channels put around it."""
    while type(error) in _WRAPPERS and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_wrapper(error: BaseException) -> bool:
    """Return whether the exception only wraps other exceptions."""
    is_wrapper = type(error) in _WRAPPERS and error.__cause__ is not None
    return is_wrapper or isinstance(error, BaseExceptionGroup | AllHandlersFailed)


def after_failure(delivery: Delivery, redeliveries: int, cause: BaseException, retryable: bool) -> Settlement:
    """Return the settlement of a message after all calls of this delivery have failed.

    Args:
        delivery: The meaning of the binding's extended properties.
        redeliveries: The number of earlier redeliveries.
        cause: The exception of the last call.
        retryable: Whether the message may be delivered again.
    """
    reason = kind_and_text(cause)
    if not retryable:
        return Reject(reason, cause=cause)
    # Negative means "a dead letter at once", as with RocketMQ's delayLevelWhenNextConsume. In ordered mode a message
    # is not sent back but stays at the head of its queue, so the level has no meaning there.
    if delivery.redelivery_level < 0 and not delivery.ordered:
        return Reject(f"redelivery is turned off for this binding; {reason}", cause=cause)
    return after_requeue(delivery, redeliveries, Requeue(reason, cause=cause))


def after_requeue(delivery: Delivery, redeliveries: int, requeue: Requeue) -> Settlement:
    """Return ``requeue``, or a `Reject` if the limit of redeliveries is reached.

    Args:
        delivery: The meaning of the binding's extended properties.
        redeliveries: The number of earlier redeliveries.
        requeue: The settlement of this delivery.
    """
    limit = delivery.redelivery_limit
    if limit is None or redeliveries < limit:
        return requeue
    times = f"{redeliveries} redeliver{'y' if redeliveries == 1 else 'ies'}"
    return Reject(f"given up after {times}; {requeue.reason}", cause=requeue.cause)
