"""The exceptions that streamkit raises.

    StreamkitError
    ├── ConfigurationError            key, value, origin, suggestion
    │   ├── UnknownSetting            an unknown key, with the most similar known one
    │   ├── UnsupportedCapability     the binder does not support what a setting asks for
    │   └── ConfigurationErrors       all configuration errors of one start
    ├── ApplicationError              the application is in the wrong state for the call
    │   ├── UnknownBinding            the application has no binding of that name
    │   ├── UseAfterFork              the application belongs to the parent process
    │   └── ForeignLoopError          the application runs on another event loop
    ├── ExpressionError               source, position
    │   └── ExpressionLimitExceeded   the expression, or a value it computes, is too large
    ├── BinderError                   binder, binding
    │   └── BinderUnavailable         the messaging system is unreachable; a retry may succeed
    ├── MessagingError                failed_message
    │   ├── MessageDispatchingError   a channel could not dispatch the message
    │   │   └── NoSubscriberError
    │   ├── MessageDeliveryError      the message did not reach its destination
    │   │   └── AllHandlersFailed     exceptions: one for each handler that was tried
    │   ├── MessageConversionError    content_type, target_type, path
    │   ├── MessageHandlingError      a handler raised; its exception is __cause__
    │   ├── RetriesExhausted          attempts; the last exception is __cause__
    │   └── BlockingSendError         `send` where only `await asend` is possible
    ├── Requeue                       a listener's settlement, not a failure: see :mod:`streamkit.settlement`
    └── Reject                        likewise

The text of each error says what happened, with which names, and what to do.
"""
# ruff: noqa: N818 - names such as RetriesExhausted state the condition; a suffix "Error" would add nothing

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # streamkit.messaging.message imports this module
    from collections.abc import Iterable

    from streamkit.messaging.message import Message


# How many characters an `ExpressionError` shows before and after the position: nearly every expression as a whole.
_CONTEXT = 1000


class StreamkitError(Exception):
    """The base class of all exceptions that streamkit raises on purpose."""


class ConfigurationError(StreamkitError):
    """A setting, or a declaration in code, is invalid.

    Attributes:
        key: The setting's key as the user wrote it, or None if the error concerns no single setting.
        value: The setting's value, or None.
        origin: Where the setting was made, such as ``application.properties:12``, or None.
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
    """A key with a prefix of streamkit's that is not a known setting."""


class UnsupportedCapability(ConfigurationError):
    """A setting or a message asks for a capability that the binder does not have."""


class ConfigurationErrors(ConfigurationError):
    """All configuration errors of one start.

    Attributes:
        errors: The single errors, in the order in which they were found.
    """

    def __init__(self, errors: Iterable[ConfigurationError]) -> None:
        self.errors = tuple(errors)
        # Errors of listeners, for instance, have no setting.
        noun = "setting" if all(error.origin or error.key for error in self.errors) else "thing"
        what = f"1 {noun} is" if len(self.errors) == 1 else f"{len(self.errors)} {noun}s are"
        lines = [f"{what} wrong:", *(f"  - {error}" for error in self.errors)]
        super().__init__("\n".join(lines))


class ApplicationError(StreamkitError):
    """The application is in the wrong state for the call, such as not started, or already started."""


class UnknownBinding(ApplicationError):
    """The application has no binding of the given name."""


class UseAfterFork(ApplicationError):
    """The application was started in the parent of this forked process; here it has no loop and no connections."""


class ForeignLoopError(ApplicationError):
    """A coroutine of the application was awaited on an event loop other than the application's."""


class ExpressionError(StreamkitError):
    """An expression cannot be compiled, or fails for a value.

    Attributes:
        reason: What is wrong.
        source: The whole expression.
        position: Index of the offending character in the source.
    """

    def __init__(self, reason: str, source: str, position: int) -> None:
        start = max(0, position - _CONTEXT)
        # An expression may come from a message: its line breaks must not forge lines of a log.
        line = "".join(each if each.isprintable() else " " for each in source[start : position + _CONTEXT])
        super().__init__(f"{reason}\n  {line}\n  {' ' * (position - start)}^")
        self.reason = reason
        self.source = source
        self.position = position


class ExpressionLimitExceeded(ExpressionError):
    """An expression, or a value it computes, exceeds a limit of `streamkit.expression.limits`."""


class BinderError(StreamkitError):
    """A messaging system refused or failed an operation of a binder.

    Attributes:
        binder: The binder's configured name, or None.
        binding: The binding's name, or None.
    """

    def __init__(self, text: str, *, binder: str | None = None, binding: str | None = None) -> None:
        super().__init__(text)
        self.binder = binder
        self.binding = binding


class BinderUnavailable(BinderError):
    """The messaging system cannot be reached at present; retrying later may succeed."""


class MessagingError(StreamkitError):
    """Processing or sending one message failed.

    Attributes:
        failed_message: The message, or None if it is not known.
    """

    def __init__(self, text: str, failed_message: Message[object] | None = None) -> None:
        super().__init__(text)
        self.failed_message = failed_message


class MessageDispatchingError(MessagingError):
    """A channel could not dispatch the message to a subscriber."""


class NoSubscriberError(MessageDispatchingError):
    """The channel has no subscriber."""


class MessageDeliveryError(MessagingError):
    """The message did not reach its destination."""


class AllHandlersFailed(MessageDeliveryError):
    """Every handler that the dispatcher tried raised an exception; `__cause__` is the group of these exceptions.

    Attributes:
        exceptions: The exceptions, in the order in which the handlers were tried.
    """

    def __init__(self, text: str, failed_message: Message[object] | None, exceptions: Iterable[Exception]) -> None:
        super().__init__(text, failed_message)
        self.exceptions = tuple(exceptions)
        self.__cause__ = ExceptionGroup("what the handlers raised, in the order they were tried", self.exceptions)


class MessageConversionError(MessagingError):
    """A payload does not have the expected form, or no converter accepts it.

    Attributes:
        content_type: The content type of the conversion, or None.
        target_type: The type to convert to when reading, or the type of the payload when writing.
        path: The place in the payload, such as ``$.items[2].price``, or None.
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
        """Add the place, such as ``binding 'orders'``, to the text, and record the message."""
        self.failed_message = message
        if place:
            self.args = (f"{place}: {self}",)

    def meant_for(self, listener: str, message: Message[object]) -> None:
        """Add the listener that could not be called to the text, and record the message."""
        self.failed_message = message
        self.args = (f"{self}; the listener is {listener}",)


class MessageHandlingError(MessagingError):
    """A handler raised an exception, which is `__cause__`."""


class RetriesExhausted(MessagingError):
    """The last attempt failed; its exception is `__cause__`.

    Attributes:
        attempts: The number of attempts made.
    """

    def __init__(self, text: str, failed_message: Message[object] | None = None, *, attempts: int = 0) -> None:
        super().__init__(text, failed_message)
        self.attempts = attempts


class BlockingSendError(MessagingError):
    """`send` was called on the loop that would have to do the sending; use `await asend` there."""
