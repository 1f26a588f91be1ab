"""Every exception streamkit raises on purpose.

    StreamkitError
    ├── ConfigurationError            key, value, origin, suggestion
    │   ├── UnknownSetting            a key nobody knows, with the nearest known one
    │   ├── UnsupportedCapability     a setting asks what the binder cannot do
    │   └── ConfigurationErrors       all that is wrong at one start, in one report
    ├── ApplicationError              the application is not in the state this needs
    │   ├── UnknownBinding            it has no binding of that name
    │   ├── UseAfterFork              it belongs to the process that was forked
    │   └── ForeignLoopError          it runs on another event loop
    ├── ExpressionError               source, position
    │   └── ExpressionLimitExceeded   the expression, or what it computes, is too large
    ├── BinderError                   binder, binding
    │   └── BinderUnavailable         the system is away; the framework tries again
    ├── MessagingError                failed_message
    │   ├── MessageDispatchingError   nobody was there to take the message
    │   │   └── NoSubscriberError
    │   ├── MessageDeliveryError      the message did not get where it was sent
    │   │   └── AllHandlersFailed     exceptions: one per handler that was tried
    │   ├── MessageConversionError    content_type, target_type, path
    │   ├── MessageHandlingError      a handler raised; its exception is __cause__
    │   ├── RetriesExhausted          attempts; the last exception is __cause__
    │   └── BlockingSendError         `send` where only `await asend` can work
    └── SettlementRequest             raised by a listener to choose what becomes of its message
        ├── Requeue                   after
        └── Reject                    reason

A message of this tree says what happened, with which names, and what to do.
"""
# ruff: noqa: N818 - a name that says what is the matter needs no suffix

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the messages' module raises these errors, so it cannot come first
    from collections.abc import Iterable

    from streamkit.messaging.message import Message


# Characters before and after the position that an `ExpressionError` shows; nearly every expression is shorter.
_CONTEXT = 1000


class StreamkitError(Exception):
    """The root: catches whatever streamkit raises on purpose."""


class ConfigurationError(StreamkitError):
    """A setting cannot be honoured as it stands.

    Attributes:
        key: The setting as the user wrote it, or None when no single setting is to blame.
        value: Its value, or None.
        origin: Where it was set, such as ``application.properties:12``.
        suggestion: What to write instead, or None.
    """

    def __init__(
        self,
        text: str,
        *,
        key: str | None = None,
        value: object = None,
        origin: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(text)
        self.key = key
        self.value = value
        self.origin = origin
        self.suggestion = suggestion


class UnknownSetting(ConfigurationError):
    """A key under one of our prefixes that no version knows."""


class UnsupportedCapability(ConfigurationError):
    """A setting or a message asks for something this binder declared it cannot do."""


class ConfigurationErrors(ConfigurationError):
    """Everything that is wrong with the settings of one start.

    Attributes:
        errors: The single errors, in the order they were found.
    """

    def __init__(self, errors: Iterable[ConfigurationError]) -> None:
        self.errors = tuple(errors)
        # Of a listener, for instance, no setting is to blame.
        noun = "setting" if all(error.origin or error.key for error in self.errors) else "thing"
        what = f"1 {noun} is" if len(self.errors) == 1 else f"{len(self.errors)} {noun}s are"
        lines = [f"{what} wrong:", *(f"  - {error}" for error in self.errors)]
        super().__init__("\n".join(lines))


class ApplicationError(StreamkitError):
    """The application is not in the state that what was asked needs: not started, started already."""


class UnknownBinding(ApplicationError):
    """The application has no binding of the name it was asked for."""


class UseAfterFork(ApplicationError):
    """The application runs in the process this one was forked from; here it has no loop and no connections."""


class ForeignLoopError(ApplicationError):
    """A coroutine of the application was awaited on an event loop that is not the application's."""


class ExpressionError(StreamkitError):
    """An expression cannot be compiled, or met a value it cannot work with.

    Attributes:
        reason: What is wrong.
        source: The whole expression.
        position: Index into the source of the offending character.
    """

    def __init__(self, reason: str, source: str, position: int) -> None:
        start = max(0, position - _CONTEXT)
        # An expression may come from a message: its line breaks must not begin a new line in a log.
        line = "".join(each if each.isprintable() else " " for each in source[start : position + _CONTEXT])
        super().__init__(f"{reason}\n  {line}\n  {' ' * (position - start)}^")
        self.reason = reason
        self.source = source
        self.position = position


class ExpressionLimitExceeded(ExpressionError):
    """An expression, or what it computes for a value, exceeds a bound of `streamkit.expression.limits`."""


class BinderError(StreamkitError):
    """A messaging system, reached through a binder, did not do what was asked.

    Attributes:
        binder: The binder's configured name, or None.
        binding: The binding concerned, or None.
    """

    def __init__(self, text: str, *, binder: str | None = None, binding: str | None = None) -> None:
        super().__init__(text)
        self.binder = binder
        self.binding = binding


class BinderUnavailable(BinderError):
    """The messaging system cannot be reached now; what was asked is worth another try later."""


class MessagingError(StreamkitError):
    """Something went wrong with one message.

    Attributes:
        failed_message: That message, or None when it is not known.
    """

    def __init__(self, text: str, failed_message: Message[object] | None = None) -> None:
        super().__init__(text)
        self.failed_message = failed_message


class MessageDispatchingError(MessagingError):
    """A channel could not hand the message to anybody."""


class NoSubscriberError(MessageDispatchingError):
    """The channel has no subscriber."""


class MessageDeliveryError(MessagingError):
    """The message did not reach where it was sent."""


class AllHandlersFailed(MessageDeliveryError):
    """Every handler the dispatcher tried raised; `__cause__` groups what they raised.

    Attributes:
        exceptions: The exceptions in the order the handlers were tried.
    """

    def __init__(
        self, text: str, failed_message: Message[object] | None, exceptions: Iterable[Exception]
    ) -> None:
        super().__init__(text, failed_message)
        self.exceptions = tuple(exceptions)
        self.__cause__ = ExceptionGroup(
            "what the handlers raised, in the order they were tried", self.exceptions
        )


class MessageConversionError(MessagingError):
    """A payload is not what its reader expects, or nobody can convert it.

    Attributes:
        content_type: The content type in force.
        target_type: The type asked for (reading) or given (writing).
        path: Where in the payload, such as ``$.items[2].price``, or None.
    """

    def __init__(
        self,
        text: str,
        failed_message: Message[object] | None = None,
        *,
        content_type: str | None = None,
        target_type: object = None,
        path: str | None = None,
    ) -> None:
        super().__init__(text, failed_message)
        self.content_type = content_type
        self.target_type = target_type
        self.path = path

    def happened_at(self, place: str, message: Message[object] | None = None) -> None:
        """Say where, such as ``binding 'orders'``, and with which message."""
        self.failed_message = message
        if place:
            self.args = (f"{place}: {self}",)

    def meant_for(self, listener: str, message: Message[object]) -> None:
        """Say which listener does not get which message."""
        self.failed_message = message
        self.args = (f"{self}; the listener is {listener}",)


class MessageHandlingError(MessagingError):
    """A handler raised; its exception is `__cause__`."""


class RetriesExhausted(MessagingError):
    """The last attempt failed too; its exception is `__cause__`.

    Attributes:
        attempts: How many attempts were made.
    """

    def __init__(
        self, text: str, failed_message: Message[object] | None = None, *, attempts: int = 0
    ) -> None:
        super().__init__(text, failed_message)
        self.attempts = attempts


class BlockingSendError(MessagingError):
    """`send` was called where it would block the loop it waits for; `await asend` works there."""


class SettlementRequest(StreamkitError):
    """A listener's decision about its message: neither a failure to retry nor one to report."""


class Requeue(SettlementRequest):
    """Deliver the message again.

    Attributes:
        after: The pause the listener asks for, or None for the binder's own.
    """

    def __init__(
        self, reason: str = "the listener asked for another delivery", *, after: timedelta | None = None
    ) -> None:
        expect("Requeue", "reason", reason, str, required=True)
        expect("Requeue", "after", after, timedelta)
        super().__init__(reason)
        self.after = after


class Reject(SettlementRequest):
    """Give the message up: it goes to the dead letters.

    Attributes:
        reason: Why, for whoever reads the dead letter.
    """

    def __init__(self, reason: str = "the listener rejected it") -> None:
        expect("Reject", "reason", reason, str, required=True)
        super().__init__(reason)
        self.reason = reason


def expect(who: str, name: str, value: object, kind: type, *, required: bool = False) -> None:
    """Refuse a value that is not of its kind where it is given, not where it is used.

    Raises:
        TypeError: It is not.
    """
    if isinstance(value, kind) or (value is None and not required):
        return
    raise TypeError(f"{who}({name}={value!r}): expected {kind.__name__}{'' if required else ' or None'}")
