"""The application's own hand on what binders make: their clients, consumers and producers, just before they start.

::

    @app.customize_consumer
    def larger_pulls(consumer: PushConsumer, destination: ConsumerDestination) -> None:
        consumer.settings = replace(consumer.settings, pull_batch_size=64)

A function whose first parameter is annotated with a class is called for objects of that class only, so that one
that knows a messaging system's client is left alone where another system stands in for it.
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, Generic, TypeVar, get_type_hints

from streamkit.binder.binder import Binder, ConsumerDestination, ProducerDestination
from streamkit.errors import ConfigurationError

__all__ = ["Customizers"]

D = TypeVar("D", ConsumerDestination, ProducerDestination)


class _Customizer(Generic[D]):
    """One function, with the class of objects it is for."""

    def __init__(self, function: Callable[[Any, D], object]) -> None:
        self._function: Callable[[Any, D], object] = function
        self._wanted = _class_of_first_parameter(function, parameters=2)

    def apply(self, native: object, destination: D) -> None:
        if isinstance(native, self._wanted):
            _call(self._function, f"of binding {destination.binding!r}", native, destination)


class Customizers:
    """What an application was told to do to its binders' objects, in the order it was told."""

    def __init__(self) -> None:
        self._consumers: list[_Customizer[ConsumerDestination]] = []
        self._producers: list[_Customizer[ProducerDestination]] = []
        self._binders: list[tuple[type, Callable[[Any], object]]] = []

    def add_consumer(self, function: Callable[[Any, ConsumerDestination], object]) -> None:
        """Call ``function(native, destination)`` for each consumer before it starts."""
        self._consumers.append(_Customizer(function))

    def add_producer(self, function: Callable[[Any, ProducerDestination], object]) -> None:
        """Call ``function(native, destination)`` for each producer before it starts."""
        self._producers.append(_Customizer(function))

    def add_binder(self, function: Callable[[Any], object]) -> None:
        """Call ``function(binder)`` for each binder when it is made."""
        self._binders.append((_class_of_first_parameter(function, parameters=1), function))

    def consumer(self, native: object, destination: ConsumerDestination) -> None:
        """Have the functions for consumers called."""
        for customizer in self._consumers:
            customizer.apply(native, destination)

    def producer(self, native: object, destination: ProducerDestination) -> None:
        """Have the functions for producers called."""
        for customizer in self._producers:
            customizer.apply(native, destination)

    def binder(self, binder: Binder) -> None:
        """Have the functions for binders called."""
        for wanted, function in self._binders:
            if isinstance(binder, wanted):
                _call(function, f"of binder {binder.name!r}", binder)


def _call(function: Callable[..., object], what: str, *arguments: object) -> None:
    """Call a customizer; what it raises is an error of the setup."""
    try:
        function(*arguments)
    except Exception as error:
        raise ConfigurationError(f"{_name(function)} could not customize what is {what}: {error}") from error


def _class_of_first_parameter(function: Callable[..., object], parameters: int) -> type:
    """The class a customizer is for: ``object``, if its annotation names none.

    Raises:
        TypeError: It cannot be called as customizers are.
    """
    if iscoroutinefunction(function):
        raise TypeError(
            f"{_name(function)} is `async def`: what it customizes would have started before it ends"
        )
    try:
        signature(function).bind(*range(parameters))
    except TypeError as error:
        wanted = "the binder" if parameters == 1 else "the binder's object and its destination"
        raise TypeError(f"{_name(function)} cannot be called with {wanted}: {error}") from error
    first: Parameter = next(iter(signature(function).parameters.values()))
    hint = (
        get_type_hints(function).get(first.name, object) if hasattr(function, "__annotations__") else object
    )
    return hint if isinstance(hint, type) else object


def _name(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = function.func
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"
