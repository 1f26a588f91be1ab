"""Settlements: a delivered message is accepted, requeued or rejected.

Listeners and binders use the same three classes::

                 a listener may    the binder then
    Accept       return it         moves the group's offset past the message
    Requeue      return, raise it  delivers the message again, to any member of the group
    Reject       return, raise it  puts the message into the dead letters of the group

They are the statuses of Spring's `AcknowledgmentCallback`. A listener that returns any other value accepts its message.
A listener that raises any other exception has failed, and the attempts of its binding decide
(:mod:`streamkit.binder.attempts`). A binder receives one settlement for each message and only carries the settlement
out (:mod:`streamkit.binder.binder`).
"""
# ruff: noqa: N818 - a decision that can be raised is no error

from datetime import timedelta
from types import AsyncGeneratorType, GeneratorType
from typing import Final, TypeAlias

from streamkit.errors import StreamkitError

__all__ = ["ACCEPT", "Accept", "Reject", "Requeue", "Settlement", "raise_returned"]


class Accept:
    """The message is consumed: the group's offset moves past it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Accept)

    def __hash__(self) -> int:
        return hash(Accept)

    def __repr__(self) -> str:
        return "Accept()"


ACCEPT: Final = Accept()
"""The instance that the framework returns for every accepted message; a binder may compare with `is`."""


class _Decision(StreamkitError):
    """A settlement that does not accept its message: a listener returns or raises it."""

    def __init__(self, reason: str, cause: BaseException | None) -> None:
        self._expect("reason", reason, str, required=True)
        self._expect("cause", cause, BaseException)
        super().__init__(reason)
        self.reason = reason
        # Assigning None would set __suppress_context__, which hides the exception that is being handled.
        if cause is not None:
            self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        """The exception behind the settlement, or None."""
        return self.__cause__

    @classmethod
    def _expect(cls, name: str, value: object, kind: type, *, required: bool = False) -> None:
        """Check the type of an argument, so that the error names the caller's line and not a later use of the value.

        Raises:
            TypeError: The value has another type.
        """
        if isinstance(value, kind) or (value is None and not required):
            return
        expected = f"{kind.__name__}{'' if required else ' or None'}"
        raise TypeError(f"{cls.__name__}({name}={value!r}): expected {expected}")


class Requeue(_Decision):
    """The message is delivered again, to any member of the group, without further attempts in this process.

    Attributes:
        reason: The reason in one line; the dead letter carries it if this was the last redelivery.
        after: The shortest time until the next delivery; None uses the binding's redelivery delays
            (:meth:`streamkit.binder.delivery.Delivery.redelivery_delay`). A binder whose system has only a table of
            delays uses the shortest delay of the table that is at least this long.
    """

    def __init__(
        self,
        reason: str = "the listener asked for another delivery",
        *,
        after: timedelta | None = None,
        cause: BaseException | None = None,
    ) -> None:
        """Make a settlement that a listener may return or raise.

        Args:
            reason: The reason in one line.
            after: The shortest time until the next delivery; None: as the binding's settings say.
            cause: The exception behind the settlement; ``raise Requeue() from error`` sets it too.

        Raises:
            TypeError: An argument has another type.
        """
        self._expect("after", after, timedelta)
        super().__init__(reason, cause)
        self.after = after

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Requeue):
            return NotImplemented
        return (self.reason, self.after, self.cause) == (other.reason, other.after, other.cause)

    def __hash__(self) -> int:
        return hash((self.reason, self.after))

    def __repr__(self) -> str:
        return f"Requeue({self.reason!r}, after={self.after!r}, cause={self.cause!r})"


class Reject(_Decision):
    """The message goes to the dead letters of its group and is never delivered again.

    Attributes:
        reason: The reason in one line; the dead letter carries it.
    """

    def __init__(self, reason: str = "the listener rejected it", *, cause: BaseException | None = None) -> None:
        """Make a settlement that a listener may return or raise.

        Args:
            reason: The reason in one line.
            cause: The exception behind the settlement; ``raise Reject("why") from error`` sets it too.

        Raises:
            TypeError: An argument has another type.
        """
        super().__init__(reason, cause)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reject):
            return NotImplemented
        return (self.reason, self.cause) == (other.reason, other.cause)

    def __hash__(self) -> int:
        return hash(self.reason)

    def __repr__(self) -> str:
        return f"Reject({self.reason!r}, cause={self.cause!r})"


Settlement: TypeAlias = Accept | Requeue | Reject
_RAISED = (Requeue, Reject)
_GENERATORS = (GeneratorType, AsyncGeneratorType)


def raise_returned(result: object) -> None:
    """Raise the handler's result if it is `Requeue` or `Reject`, an instance or the class; do nothing otherwise.

    Raises:
        Requeue: The handler returned it.
        Reject: The handler returned it.
        TypeError: The handler returned a generator. Nothing iterates that, so the handler has done nothing.
    """
    if isinstance(result, _RAISED) or result is Requeue or result is Reject:
        raise result
    if isinstance(result, _GENERATORS):
        raise TypeError(
            f"{result.__qualname__} has a yield, so it returned a generator, which nothing iterates: return a list, or "
            "register the function with @app.function"
        )
