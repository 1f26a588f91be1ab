"""Customizers: functions of the application that change binders, consumers and producers before these start.

::

    @app.customize_consumer
    def larger_pulls(consumer: PushConsumer, destination: ConsumerDestination) -> None:
        consumer.settings = replace(consumer.settings, pull_batch_size=64)

A function whose first parameter is annotated with a class is called for objects of that class only. So a customizer of
one messaging system's client is not called in a test where the in-memory binder stands in for that system.
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
    """A function with the class of the objects that it customizes."""

    def __init__(self, function: Callable[[Any, D], object]) -> None:
        self._function: Callable[[Any, D], object] = function
        self._wanted = _class_of_first_parameter(function, parameters=2)

    def apply(self, native: object, destination: D) -> None:
        if isinstance(native, self._wanted):
            _call(self._function, f"an object of binding {destination.binding!r}", native, destination)


class Customizers:
    """The customizers of an application; they are called in the order in which they were added."""

    def __init__(self) -> None:
        self._consumers: list[_Customizer[ConsumerDestination]] = []
        self._producers: list[_Customizer[ProducerDestination]] = []
        self._binders: list[tuple[type, Callable[[Any], object]]] = []

    def add_consumer(self, function: Callable[[Any, ConsumerDestination], object]) -> None:
        """Call ``function(native, destination)`` for each consumer before it starts.

        Raises:
            TypeError: The function is a coroutine function, or does not take two arguments.
        """
        self._consumers.append(_Customizer(function))

    def add_producer(self, function: Callable[[Any, ProducerDestination], object]) -> None:
        """Call ``function(native, destination)`` for each producer before it starts.

        Raises:
            TypeError: The function is a coroutine function, or does not take two arguments.
        """
        self._producers.append(_Customizer(function))

    def add_binder(self, function: Callable[[Any], object]) -> None:
        """Call ``function(binder)`` for each binder when it is made.

        Raises:
            TypeError: The function is a coroutine function, or does not take one argument.
        """
        self._binders.append((_class_of_first_parameter(function, parameters=1), function))

    def consumer(self, native: object, destination: ConsumerDestination) -> None:
        """Call the functions for consumers with a consumer.

        Raises:
            ConfigurationError: A function raised.
        """
        for customizer in self._consumers:
            customizer.apply(native, destination)

    def producer(self, native: object, destination: ProducerDestination) -> None:
        """Call the functions for producers with a producer.

        Raises:
            ConfigurationError: A function raised.
        """
        for customizer in self._producers:
            customizer.apply(native, destination)

    def binder(self, binder: Binder) -> None:
        """Call the functions for binders with a binder.

        Raises:
            ConfigurationError: A function raised.
        """
        for wanted, function in self._binders:
            if isinstance(binder, wanted):
                _call(function, f"binder {binder.name!r}", binder)


def _call(function: Callable[..., object], what: str, *arguments: object) -> None:
    """Call a customizer.

    Raises:
        ConfigurationError: The customizer raised; its exception is the cause.
    """
    try:
        function(*arguments)
    except Exception as error:
        raise ConfigurationError(f"{_name(function)} could not customize {what}: {error}") from error


def _class_of_first_parameter(function: Callable[..., object], parameters: int) -> type:
    """Return the class in the annotation of a customizer's first parameter, or ``object`` if there is none.

    Raises:
        TypeError: The function is a coroutine function, or does not take that number of arguments.
    """
    if iscoroutinefunction(function):
        raise TypeError(
            f"{_name(function)} is `async def`, so the object would start before it has been customized: make it `def`"
        )
    try:
        signature(function).bind(*range(parameters))
    except TypeError as error:
        wanted = "the binder" if parameters == 1 else "the binder's object and its destination"
        raise TypeError(f"{_name(function)} cannot be called with {wanted}: {error}") from error
    first: Parameter = next(iter(signature(function).parameters.values()))
    hint = get_type_hints(function).get(first.name, object) if hasattr(function, "__annotations__") else object
    return hint if isinstance(hint, type) else object


def _name(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = function.func
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"
