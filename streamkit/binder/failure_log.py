"""The log of a binding's failed messages: one line for each failed call, the last of which says where the message goes.

    WARNING   the message is called again, delivered again, or its error handler has accepted it
    WARNING   the listener itself has rejected the message
    ERROR     the message is given up: it goes to the dead letters, or is lost

Each line names the message, and has the same facts as structured fields (:mod:`streamkit.log_format`). Only the line of
the first attempt has a traceback; the level DEBUG adds it to the others.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar, Final, Protocol

from streamkit.binder.delivered import DeliveredMessage
from streamkit.errors import MessageConversionError
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.message import Message
from streamkit.settlement import Reject

__all__ = ["FailureLog", "fate_of_rejected"]

logger = logging.getLogger(__name__)

_RETRY: Final = "retry"
_REDELIVERY: Final = "redelivery"
_ACCEPTED: Final = "accepted"
_DEAD_LETTER: Final = "dead-letter"
_LOST: Final = "lost"


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
            exc_info=_traceback(cause, number),
            extra=self._fields(failed, _RETRY, cause, next_in_seconds=pause),
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
            exc_info=_traceback(failed.failure, failed.attempts),
            extra=self._fields([failed], _REDELIVERY, failed.failure),
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
            extra=self._fields([failed], _ACCEPTED, cause),
        )

    def failed_after_settling(self, delivered: Sequence[DeliveredMessage], error: BaseException) -> None:
        """Log that a listener failed although it had settled its message by hand: that settlement remains."""
        logger.error(
            "Binding %r: a listener failed after it had settled %s",
            self._binding,
            self._named(delivered),
            exc_info=error,
            extra=self._fields(delivered, None, error),
        )

    def handler_failed(self, failed: DeliveredMessage, error: BaseException) -> None:
        """Log that the error handler failed, so the message continues as without it."""
        logger.error(
            "An error handler of binding %r failed for %s",
            self._binding,
            self._named([failed]),
            exc_info=error,
            extra=self._fields([failed], None, error),
        )

    def dropped(self, failed: DeliveredMessage, reason: str) -> None:
        """Log that a failed message of a broadcast binding is lost."""
        self._final(failed, failed.failure, reason, _LOST, "It is lost: broadcast messages are not kept")

    def rejected(self, failed: DeliveredMessage, rejection: Reject) -> None:
        """Log where a rejected message goes; it is an error unless the listener has decided so."""
        letters = self._letters
        # A Requeue beyond the limit of redeliveries is nobody's decision, whether or not it has a cause.
        is_decided = failed.failure is None and not failed.is_exhausted
        step, fate = _LOST if letters is None else _DEAD_LETTER, fate_of_rejected(letters)
        self._final(failed, failed.failure or rejection.cause, rejection.reason, step, fate, is_decided=is_decided)

    def _final(
        self,
        failed: DeliveredMessage,
        cause: BaseException | None,
        reason: str,
        step: str,
        fate: str,
        *,
        is_decided: bool = False,
    ) -> None:
        fields = self._fields([failed], step, cause)
        if step == _DEAD_LETTER:
            fields["dead_letter"] = self._letters
        logger.log(
            logging.WARNING if is_decided else logging.ERROR,
            "Binding %r %s %s of topic %r, group %r, %s: %s. %s",
            self._binding,
            "rejects" if is_decided else "gives up",
            self._named([failed]),
            fields["destination"],
            self._group or "anonymous",
            _after(failed),
            reason,
            fate,
            exc_info=_for_debugging(cause) if is_decided else _traceback(cause, failed.attempts),
            extra=fields,
        )

    def _fields(
        self,
        messages: Sequence[DeliveredMessage],
        step: str | None,
        cause: BaseException | None,
        **more: object,
    ) -> dict[str, object]:
        """Return the structured fields of a line."""
        first = messages[0]
        fields: dict[str, object] = {
            "binding": self._binding,
            "destination": self._topic_of(first),
            "group": self._group,
            "message_id": self._places.name_of(first.message),
            "attempt": first.attempts,
            "redeliveries": first.redeliveries,
        }
        if len(messages) > 1:
            fields["batch_size"] = len(messages)
        if step is not None:
            fields["next_step"] = step
        if cause is not None:
            fields["error"] = kind_and_text(cause)
        return fields | more

    def _named(self, messages: Sequence[DeliveredMessage]) -> str:
        first = f"message {self._places.name_of(messages[0].message)}"
        return first if len(messages) == 1 else f"a batch of {len(messages)} that begins with {first}"

    def _topic_of(self, delivered: DeliveredMessage) -> str:
        origin = self._places.origin_of(delivered.message) if self._places.multiplexes else None
        return self._topic if origin is None else origin


def fate_of_rejected(letters: str | None) -> str:
    """Return the sentence that says where a rejected message goes.

    Args:
        letters: The destination of the binding's dead letters; None if rejected messages are lost.
    """
    return "It is lost: the binding has no dead letters" if letters is None else f"It goes to {letters!r}"


def _after(failed: DeliveredMessage) -> str:
    return "after 1 attempt" if failed.attempts == 1 else f"after {failed.attempts} attempts"


def _traceback(cause: BaseException | None, attempt: int) -> BaseException | None:
    """Return the exception whose traceback is logged: that of the first attempt, since others are nearly always alike.

    A payload that cannot be converted has none: its text says where it is wrong, and our own stack says nothing more.
    """
    return cause if attempt == 1 and not isinstance(cause, MessageConversionError) else _for_debugging(cause)


def _for_debugging(error: BaseException | None) -> BaseException | None:
    return error if logger.isEnabledFor(logging.DEBUG) else None
