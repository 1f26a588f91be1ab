"""The log of a binding's failed messages: one line for each failed call, and one for each message that is given up.

    WARNING   the message is called again, delivered again, or its error handler has accepted it
    WARNING   the listener itself has rejected the message
    ERROR     the message is given up: it goes to the dead letters, or is lost

Each line names the message. Only the last one of a message has a traceback; the level DEBUG adds it to the others.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar, Protocol

from streamkit.binder.delivered import DeliveredMessage
from streamkit.errors import MessageConversionError
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.message import Message
from streamkit.settlement import Reject

__all__ = ["FailureLog"]

logger = logging.getLogger(__name__)


class Places(Protocol):
    """The part of a binder that knows where messages are."""

    multiplexes: ClassVar[bool]
    """Whether one consumer receives the messages of several topics."""

    def origin_of(self, message: Message[bytes]) -> str | None:
        """Return the topic that a received message was sent to."""
        ...

    def name_of(self, message: Message[bytes]) -> str:
        """Return the name by which the messaging system's tools find a received message."""
        ...


class FailureLog:
    """Logs the failures of one binding's messages."""

    def __init__(self, binding: str, topic: str, group: str | None, places: Places, letters: str | None) -> None:
        """Make the log of a binding.

        Args:
            binding: The binding's name.
            topic: The destination.
            group: The binding's group; None for an anonymous one.
            places: The binding's binder.
            letters: The destination of its dead letters; None if rejected messages are lost.
        """
        self._binding = binding
        self._topic = topic
        self._group = group
        self._places = places
        self._letters = letters

    def tried_again(
        self, failed: Sequence[DeliveredMessage], number: int, last: int, pause: float, cause: BaseException
    ) -> None:
        """Log that a call failed and that the next one follows in this process.

        Args:
            failed: The messages of the call.
            number: The number of the call.
            last: The number of the last call of this delivery.
            pause: The seconds until the next call.
            cause: The listener's exception.
        """
        logger.warning(
            "Binding %r: %s failed in attempt %d of %d, next in %g s: %s",
            self._binding,
            self._named(failed),
            number,
            last,
            pause,
            kind_and_text(cause),
            exc_info=_for_debugging(cause),
        )

    def delivered_again(self, failed: DeliveredMessage, limit: int | None) -> None:
        """Log that all calls of a delivery failed and that another delivery follows.

        Args:
            failed: The message; it has a failure.
            limit: The largest number of redeliveries, if there is one.
        """
        assert failed.failure is not None
        logger.warning(
            "Binding %r: %s failed in attempt %d and is delivered again, redelivery %d%s: %s",
            self._binding,
            self._named([failed]),
            failed.attempts,
            failed.redeliveries + 1,
            "" if limit is None else f" of {limit}",
            kind_and_text(failed.failure),
            exc_info=_for_debugging(failed.failure),
        )

    def handled(self, failed: DeliveredMessage, cause: BaseException) -> None:
        """Log that the error handler has accepted a message."""
        logger.warning(
            "Binding %r: %s failed %s; the error handler has accepted it: %s",
            self._binding,
            self._named([failed]),
            _after(failed),
            kind_and_text(cause),
            exc_info=_for_debugging(cause),
        )

    def failed_after_settling(self, delivered: Sequence[DeliveredMessage], error: BaseException) -> None:
        """Log that a listener failed although it had settled its message by hand: that settlement remains."""
        logger.error(
            "Binding %r: a listener failed after it had settled %s",
            self._binding,
            self._named(delivered),
            exc_info=error,
        )

    def handler_failed(self, failed: DeliveredMessage, error: BaseException) -> None:
        """Log that the error handler failed, so the message continues as without it."""
        logger.error(
            "An error handler of binding %r failed for %s", self._binding, self._named([failed]), exc_info=error
        )

    def dropped(self, failed: DeliveredMessage, reason: str) -> None:
        """Log that a failed message of a broadcast binding is lost."""
        self._final(failed, failed.failure, reason, "It is lost: broadcast messages are not kept")

    def rejected(self, failed: DeliveredMessage, rejection: Reject) -> None:
        """Log where a rejected message goes; it is an error unless the listener has decided so."""
        letters = self._letters
        fate = "It is lost: the binding has no dead letters" if letters is None else f"It goes to {letters!r}"
        # A Requeue beyond the limit of redeliveries is nobody's decision, whether or not it has a cause.
        is_decided = failed.failure is None and not failed.is_exhausted
        self._final(failed, failed.failure or rejection.cause, rejection.reason, fate, is_decided=is_decided)

    def _final(
        self, failed: DeliveredMessage, cause: BaseException | None, reason: str, fate: str, *, is_decided: bool = False
    ) -> None:
        what = "rejects" if is_decided else "gives up"
        text = "Binding %r %s %s of topic %r, group %r, %s: %s. %s"
        arguments = (
            self._binding,
            what,
            self._named([failed]),
            self._topic_of(failed),
            self._group or "anonymous",
            _after(failed),
            reason,
            fate,
        )
        # The text of a payload that cannot be converted says where it is wrong; our own stack says nothing more.
        is_of_payload = isinstance(cause, MessageConversionError)
        if is_decided:
            logger.warning(text, *arguments, exc_info=_for_debugging(cause))
        else:
            logger.error(text, *arguments, exc_info=_for_debugging(cause) if is_of_payload else cause)

    def _named(self, messages: Sequence[DeliveredMessage]) -> str:
        first = f"message {self._places.name_of(messages[0].message)}"
        return first if len(messages) == 1 else f"a batch of {len(messages)} that begins with {first}"

    def _topic_of(self, delivered: DeliveredMessage) -> str:
        origin = self._places.origin_of(delivered.message) if self._places.multiplexes else None
        return self._topic if origin is None else origin


def _after(failed: DeliveredMessage) -> str:
    return "after 1 attempt" if failed.attempts == 1 else f"after {failed.attempts} attempts"


def _for_debugging(error: BaseException | None) -> BaseException | None:
    return error if logger.isEnabledFor(logging.DEBUG) else None
