"""The decorators of listeners, and the markers of their parameters.

::

    @stream_listener("orders", condition="headers['type'] == 'new'")
    @send_to("receipts")
    async def charge(order: Order, customer: Annotated[str, Header("customer")]) -> Receipt: ...

The decorators store their arguments on the function and return the function unchanged, so that it can be called and
tested like any other. An application finds decorated functions in the modules and classes it is given.
`app.stream_listener` registers the function with that application only, and stores nothing on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from streamkit.declarations import declarations_on, declare
from streamkit.listeners.binding_interfaces import ChannelDeclaration
from streamkit.messaging.message import Message

__all__ = [
    "ErrorListener",
    "Header",
    "Headers",
    "IdempotentBy",
    "Listener",
    "Payload",
    "SendTo",
    "TransactionGroup",
    "error_listener",
    "name_of",
    "outputs_on",
    "refuse_class",
    "send_to",
    "stream_listener",
    "transaction_listener",
]

F = TypeVar("F", bound=Callable[..., Any])

BindingName = str | ChannelDeclaration


@dataclass(frozen=True, slots=True)
class Header:
    """Marks a parameter that takes one header: ``Annotated[str, Header("customer")]``.

    Attributes:
        name: The header's name; the parameter's name if not given.
        required: Whether a message without the header is an error. A parameter with a default is never required.
    """

    name: str | None = None
    required: bool = True


@dataclass(frozen=True, slots=True)
class Headers:
    """Marks a parameter that takes all headers as a new dictionary: ``Annotated[dict[str, object], Headers()]``."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Marks the parameter that takes the payload, for a listener with several candidates."""


IdempotentBy: TypeAlias = str | Header | Callable[[Message[Any]], object] | Literal[False]
"""What tells a message from others: an expression, a header, a function of the message, or False for nothing."""


@dataclass(frozen=True, slots=True)
class Listener:
    """The arguments of `stream_listener`.

    Attributes:
        binding: The input binding's name.
        condition: An expression over the message; the listener is called only for messages that match.
        copy_headers: Whether the input's headers are copied to the messages that `send_to` sends.
        idempotent_by: The key by which a message is handled once; None: as the settings say.
    """

    binding: str
    condition: str | None = None
    copy_headers: bool = True
    idempotent_by: IdempotentBy | None = None


@dataclass(frozen=True, slots=True)
class SendTo:
    """One binding of `send_to`.

    Attributes:
        binding: The output binding's name.
    """

    binding: str


@dataclass(frozen=True, slots=True)
class ErrorListener:
    """The arguments of `error_listener`.

    Attributes:
        channel: The error channel's name.
    """

    channel: str


@dataclass(frozen=True, slots=True)
class TransactionGroup:
    """The arguments of `transaction_listener`.

    Attributes:
        group: The producer group.
    """

    group: str


def stream_listener(
    binding: BindingName,
    condition: str | None = None,
    *,
    copy_headers: bool = True,
    idempotent_by: IdempotentBy | None = None,
) -> Callable[[F], F]:
    """Call the function for each message of an input binding.

    The annotations of its parameters select the arguments: the payload as a type, ``Message[T]``, `MessageHeaders`,
    single headers marked by `Header`, or an `Acknowledgment` to settle the message by hand. ``def`` functions are
    called on threads.

    A function that returns accepts the message, unless it returns `Requeue` or `Reject`; both may be raised as well.
    After any other exception the function is called again, as the binding's retry settings say, and the message may be
    redelivered.

    The payload is converted once for each delivery: all attempts in this process get the same object. A listener that
    may fail must not change that object, or must change a copy; frozen types cannot be changed. A redelivery is
    converted anew.

    Args:
        binding: The binding's name, or its declaration such as ``Sink.input``.
        condition: An expression over the message, such as ``headers['kind'] == 'tea'``; without it every message
            matches.
        copy_headers: Whether the input's headers are copied to the messages that `send_to` sends. The content type,
            and headers that only concern the incoming message, are never copied.
        idempotent_by: Handle messages of the same key once. The key is an expression such as ``payload.id``,
            ``Header("order-id")``, a function of the message, or ``"message-id"`` for the id that its sender gave it.
            False handles every delivery; None does as ``streamkit.inbox.idempotent-by`` says.
    """
    return _noted_on_function(Listener(name_of(binding), condition, copy_headers, idempotent_by))


def send_to(*bindings: BindingName) -> Callable[[F], F]:
    """Send the function's result to output bindings; each of them gets the whole result.

    ``None`` sends nothing, a `Message` is sent unchanged, a list of messages one by one, anything else as a payload.
    An empty list is a payload, unless the function is annotated ``-> list[Message[...]]``.

    Args:
        bindings: The names of output bindings, or their declarations such as ``Source.output``.

    Raises:
        TypeError: No binding is given.
    """
    if not bindings:
        raise TypeError("send_to needs the name of a binding")
    return _noted_on_function(*(SendTo(name_of(binding)) for binding in bindings))


def error_listener(channel: str = "errorChannel") -> Callable[[F], F]:
    """Call the function with the `ErrorMessage` of each failure that is sent to an error channel.

    If a listener of ``<destination>.<group>.errors`` returns, the failed message is settled for good.

    Args:
        channel: The error channel's name.
    """
    return _noted_on_function(ErrorListener(channel))


def transaction_listener(group: str) -> Callable[[F], F]:
    """Make a function or a class the transaction listener of a producer group.

    A function is the check for local transactions of unknown state; its arguments are planned like those of a
    listener. A class has the methods of :class:`streamkit.listeners.transactions.TransactionListener`.

    Args:
        group: The producer group.
    """
    return _noted(TransactionGroup(group))


def name_of(binding: object) -> str:
    """Return the name of a binding that is given by name or by declaration.

    Raises:
        TypeError: The value is neither.
    """
    if isinstance(binding, str | ChannelDeclaration):
        return binding if isinstance(binding, str) else binding.name
    name = getattr(binding, "__qualname__", repr(binding))
    hint = ': write @app.stream_listener("orders")' if callable(binding) else ""
    raise TypeError(f"{name} is not the name of a binding{hint}")


def outputs_on(function: object) -> tuple[str, ...]:
    """Return the bindings that `send_to` stored on a function or bound method."""
    return tuple(each.binding for each in declarations_on(function, SendTo))


def refuse_class(target: object) -> None:
    """Refuse a class where a function is decorated.

    Raises:
        TypeError: The target is a class.
    """
    if isinstance(target, type):
        raise TypeError(
            f"{target.__qualname__} is a class: decorate its methods with streamkit.stream_listener, and give the "
            "class to the application"
        )


def _noted(*declarations: object) -> Callable[[F], F]:
    return lambda target: declare(target, *declarations)


def _noted_on_function(*declarations: object) -> Callable[[F], F]:
    def note(target: F) -> F:
        refuse_class(target)
        return declare(target, *declarations)

    return note
