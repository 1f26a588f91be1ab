"""The registrations of an application: the declarations it is to run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamkit.functions.routing_callback import RoutingCallback
from streamkit.messaging.interceptor import GlobalChannelInterceptors

if TYPE_CHECKING:  # importing these is slow, and only a started application needs them
    from streamkit.binder.customizers import Customizers
    from streamkit.binder.factory import NewDestination

__all__ = ["Declared", "PolledInput", "Registrations"]


@dataclass(frozen=True, slots=True)
class Declared:
    """A declaration and its target.

    Attributes:
        target: The decorated function, class or object; the application for declarations made on the application.
        declaration: The record of the decorator's arguments, such as a `Listener`.
    """

    target: Any
    declaration: object


@dataclass(frozen=True, slots=True)
class PolledInput:
    """A polled binding that code asked for by `app.pollable_source`.

    Attributes:
        name: The binding's name.
    """

    name: str


class Registrations:
    """The listeners, interfaces and callbacks of an application before it starts.

    Attributes:
        sources: Decorated functions, and modules, classes and objects with such functions.
        declared: The declarations made by the application's own decorators and methods, in order.
        routing_callback: The routing function's callback, or None.
        interceptors: The interceptors of channels whose names match a pattern.
        on_new_destination: Called with each output binding created by sending to a new name, to change its settings;
            or None.
    """

    def __init__(self, sources: Sequence[object]) -> None:
        self.sources = list(sources)
        self.declared: list[Declared] = []
        self.routing_callback: RoutingCallback | None = None
        self.interceptors = GlobalChannelInterceptors()
        self._customizers: Customizers | None = None
        self.on_new_destination: Callable[[NewDestination], object] | None = None

    def declare(self, target: object, *declarations: object) -> None:
        """Register declarations on a function, a class or an object."""
        self.declared.extend(Declared(target, declaration) for declaration in declarations)

    @property
    def customizers(self) -> "Customizers":
        """The functions that customize binders, consumers and producers."""
        if self._customizers is None:
            from streamkit.binder.customizers import Customizers

            self._customizers = Customizers()
        return self._customizers
