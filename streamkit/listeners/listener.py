"""What decorates listeners, and the markers of their parameters.

::

    @stream_listener("orders", condition="headers['type'] == 'new'")
    @send_to("receipts")
    async def charge(order: Order, customer: Annotated[str, Header("customer")]) -> Receipt: ...

The decorators note what they are told on the function and return it as it is, so that it can be called and
tested like any other. An application finds decorated functions in the modules and classes it is given;
`app.stream_listener` notes and registers at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import getmembers_static
from types import FunctionType, ModuleType
from typing import Any, Final, TypeVar, cast

from streamkit.binder.feeding import feeders_on
from streamkit.listeners.binding_interfaces import ChannelDeclaration
from streamkit.listeners.function_declaration import functions_on

__all__ = [
    "Header",
    "Headers",
    "Listener",
    "Payload",
    "error_listener",
    "send_to",
    "stream_listener",
    "transaction_listener",
]

F = TypeVar("F", bound=Callable[..., Any])

_LISTENERS: Final = "__streamkit_listeners__"
_OUTPUTS: Final = "__streamkit_outputs__"
_ERRORS: Final = "__streamkit_error_channels__"
_TRANSACTION_GROUP: Final = "__streamkit_transaction_group__"

BindingName = str | ChannelDeclaration


@dataclass(frozen=True, slots=True)
class Header:
    """Marks a parameter that takes one header: ``Annotated[str, Header("customer")]``.

    Attributes:
        name: The header's name; the parameter's, if not given.
        required: Whether a message without it is an error; a parameter with a default is not required.
    """

    name: str | None = None
    required: bool = True


@dataclass(frozen=True, slots=True)
class Headers:
    """Marks a parameter that takes all headers as a new dictionary: ``Annotated[dict[str, object], Headers()]``."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Marks the parameter that takes the payload, where a listener has several that could."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What `stream_listener` was told.

    Attributes:
        binding: The input binding's name.
        condition: An expression over the message; only matching messages are handed over.
        copy_headers: Whether the input's headers go to what `send_to` sends.
    """

    binding: str
    condition: str | None = None
    copy_headers: bool = True


def stream_listener(
    binding: BindingName, condition: str | None = None, *, copy_headers: bool = True
) -> Callable[[F], F]:
    """Call the function for each message of an input binding.

    Its annotations say what it is given: the payload as that type, or ``Message[T]``; `MessageHeaders`, or single
    headers by `Header`; an `Acknowledgment` to settle by hand. Returning accepts the message; what it raises has it
    tried and delivered again, `Reject` makes it a dead letter at once. ``def`` functions are called on threads.

    Args:
        binding: The binding's name, or its declaration such as ``Sink.input``.
        condition: An expression over the message, such as ``headers['kind'] == 'tea'``; without it every message
            matches.
        copy_headers: Whether the input's headers go to what `send_to` sends; its content type, and what is true of
            the incoming message only, never do.
    """
    return _noted(_LISTENERS, Listener(name_of(binding), condition, copy_headers))


def send_to(*bindings: BindingName) -> Callable[[F], F]:
    """Send what the function returns to an output binding; several bindings each get it.

    ``None`` sends nothing, a `Message` goes as it is, a list of messages one by one, anything else as a payload.
    An empty list is a payload, unless the function is annotated ``-> list[Message[...]]``.
    """
    if not bindings:
        raise TypeError("send_to needs the name of a binding")
    return _noted(_OUTPUTS, *map(name_of, bindings))


def error_listener(channel: str = "errorChannel") -> Callable[[F], F]:
    """Call the function with the `ErrorMessage` of each failure sent to an error channel.

    A listener of ``<destination>.<group>.errors`` settles the message for good, unless it raises itself.
    """
    return _noted(_ERRORS, channel)


def transaction_listener(group: str) -> Callable[[F], F]:
    """Have a function, or a class, answer for the local transactions of a producer group.

    A function is the checker of a :class:`streamkit.listeners.transactions.TransactionListener`, its arguments planned
    like those of a listener; a class has both methods of it.
    """

    def note(target: F) -> F:
        setattr(target, _TRANSACTION_GROUP, group)
        return target

    return note


def name_of(binding: object) -> str:
    """Return the name of a binding that may be given by its declaration."""
    if isinstance(binding, str | ChannelDeclaration):
        return binding if isinstance(binding, str) else binding.name
    name = getattr(binding, "__qualname__", repr(binding))
    hint = ': write @app.stream_listener("orders")' if callable(binding) else ""
    raise TypeError(f"{name} stands where the name of a binding belongs{hint}")


def listeners_on(function: object) -> tuple[Listener, ...]:
    """Return what `stream_listener` noted on a function or bound method."""
    return cast("tuple[Listener, ...]", getattr(function, _LISTENERS, ()))


def outputs_on(function: object) -> tuple[str, ...]:
    """Return the bindings `send_to` noted on a function or bound method."""
    return cast("tuple[str, ...]", getattr(function, _OUTPUTS, ()))


def error_channels_on(function: object) -> tuple[str, ...]:
    """Return the channels `error_listener` noted on a function or bound method."""
    return cast("tuple[str, ...]", getattr(function, _ERRORS, ()))


def transaction_group_of(target: object) -> str | None:
    """Return the producer group that `transaction_listener` noted on a function or a class."""
    return cast("str | None", getattr(target, _TRANSACTION_GROUP, None))


def is_decorated(function: object) -> bool:
    """Return whether an application has something to do with the function."""
    return bool(
        listeners_on(function)
        or error_channels_on(function)
        or functions_on(function)
        or feeders_on(function)
        or transaction_group_of(function) is not None
    )


def decorated_in(source: object) -> Iterator[Callable[..., object]]:
    """Yield the decorated functions of a module, or the decorated methods of an object, bound to it."""
    if isinstance(source, ModuleType):
        for value in vars(source).values():
            if (
                isinstance(value, FunctionType)
                and value.__module__ == source.__name__
                and is_decorated(value)
            ):
                yield value
        return
    for name, value in getmembers_static(type(source)):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, FunctionType) and is_decorated(function):
            yield getattr(source, name)


def has_listeners(kind: type) -> bool:
    """Return whether a class has decorated methods."""
    members = (value for _, value in getmembers_static(kind))
    return any(is_decorated(getattr(value, "__func__", value)) for value in members)


def _noted(attribute: str, *notes: object) -> Callable[[F], F]:
    def note(function: F) -> F:
        setattr(function, attribute, (*notes, *getattr(function, attribute, ())))
        return function

    return note
