"""Binding interfaces: classes whose attributes declare channels of an application.

::

    class Orders:
        placed = output_channel()                  # binding "placed"
        refunds = input_channel("order-refunds")

    app.enable_binding(Orders)
    await app.bound(Orders).placed.asend(message)

`Source`, `Sink` and `Processor` are predefined.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self, TypeVar, cast, overload

from streamkit.declarations import declare
from streamkit.messaging.channel import SubscribableChannel

__all__ = [
    "ChannelDeclaration",
    "Direction",
    "EnabledBinding",
    "Processor",
    "Sink",
    "Source",
    "enable_binding",
    "input_channel",
    "output_channel",
]

C = TypeVar("C", bound=type)
I = TypeVar("I")  # noqa: E741  # a binding interface

_CHANNELS: Final = "_streamkit_channels"


class Direction(Enum):
    """The direction of messages through a binding."""

    INPUT = "input"
    OUTPUT = "output"


class ChannelDeclaration:
    """An attribute of a binding interface; on a bound instance its value is the channel."""

    def __init__(self, direction: Direction, name: str | None = None) -> None:
        self.direction = direction
        self._name = name

    @property
    def name(self) -> str:
        """The binding's name.

        Raises:
            TypeError: The declaration has no name and is not an attribute of a class.
        """
        if self._name is None:
            raise TypeError("a channel without a name must be an attribute of a class, whose name it takes")
        return self._name

    def __set_name__(self, owner: type, name: str) -> None:
        if self._name is None:
            self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> SubscribableChannel: ...
    def __get__(self, instance: object | None, owner: type) -> "ChannelDeclaration | SubscribableChannel":
        if instance is None:
            return self
        channels = cast("Mapping[str, SubscribableChannel] | None", getattr(instance, _CHANNELS, None))
        if channels is None:
            raise TypeError(
                f"{owner.__name__} is not bound: take it from app.bound({owner.__name__}), or ask for it in the "
                "constructor of a class given to the application"
            )
        return channels[self.name]

    def __repr__(self) -> str:
        return f"{self.direction.value}_channel({self._name!r})"


@dataclass(frozen=True, slots=True)
class EnabledBinding:
    """One binding interface of `enable_binding`.

    Attributes:
        interface: The binding interface.
    """

    interface: type


def input_channel(name: str | None = None) -> ChannelDeclaration:
    """Declare an input binding; its name is that of the attribute if none is given."""
    return ChannelDeclaration(Direction.INPUT, name)


def output_channel(name: str | None = None) -> ChannelDeclaration:
    """Declare an output binding; its name is that of the attribute if none is given."""
    return ChannelDeclaration(Direction.OUTPUT, name)


class Source:
    """An interface with one output, the binding `output`."""

    OUTPUT: Final = "output"

    output = output_channel(OUTPUT)


class Sink:
    """An interface with one input, the binding `input`."""

    INPUT: Final = "input"

    input = input_channel(INPUT)


class Processor(Source, Sink):
    """An interface with the input binding `input` and the output binding `output`."""


def enable_binding(*interfaces: type) -> Callable[[C], C]:
    """Decorate a class so that an application that is given the class binds `interfaces`."""

    return lambda target: declare(target, *map(EnabledBinding, interfaces))


def declarations_of(interface: type) -> Iterator[ChannelDeclaration]:
    """Yield the channel declarations of a binding interface.

    Raises:
        TypeError: The class declares no channels.
    """
    found = _found_in(interface)
    if not found:
        raise TypeError(
            f"{interface.__name__} declares no channels: give it attributes made by input_channel() or output_channel()"
        )
    yield from found.values()


def declares_channels(kind: type) -> bool:
    """Return whether a class is a binding interface."""
    return bool(_found_in(kind))


def _found_in(interface: type) -> dict[str, ChannelDeclaration]:
    return {
        name: value
        for kind in reversed(interface.__mro__)
        for name, value in vars(kind).items()
        if isinstance(value, ChannelDeclaration)
    }


def bound_interface(interface: type[I], channels: Mapping[str, SubscribableChannel]) -> I:
    """Return an instance of `interface` whose attributes are the channels.

    Its constructor is not called.
    """
    instance = object.__new__(interface)
    setattr(instance, _CHANNELS, channels)
    return instance
