"""The set-up of an application before it starts: listeners, functions, bindings, named objects, customizers."""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from streamkit.assembly.registrations import Registrations
from streamkit.binder.feeding import FeederDeclaration
from streamkit.binder.named_objects import NamedObjects
from streamkit.functions.routing_callback import RoutingCallback
from streamkit.listeners.binding_interfaces import EnabledBinding, declarations_of
from streamkit.listeners.function_declaration import function_declaration
from streamkit.listeners.listener import (
    BindingName,
    ErrorListener,
    IdempotentBy,
    Listener,
    TransactionGroup,
    name_of,
    refuse_class,
    send_to,
)
from streamkit.messaging.interceptor import ChannelInterceptor

if TYPE_CHECKING:  # importing these is slow, and only a started application needs them
    from dependency_injector.containers import Container

    from streamkit.binder.attempts import RetryPolicy
    from streamkit.binder.binder import ConsumerDestination, ProducerDestination
    from streamkit.binder.binding import Feeder
    from streamkit.binder.factory import NewDestination

__all__ = ["ApplicationSetup"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound="Callable[[Any, ConsumerDestination], object]")
P = TypeVar("P", bound="Callable[[Any, ProducerDestination], object]")
B = TypeVar("B", bound=Callable[[Any], object])


class ApplicationSetup:
    """The decorators and methods that register what an application runs."""

    def __init__(self, sources: Sequence[object], container: "Container | None") -> None:
        self._registrations = Registrations(sources)
        self._named = NamedObjects(() if container is None else (container,))
        self._retry_policy: RetryPolicy | None = None

    def stream_listener(
        self,
        binding: BindingName,
        condition: str | None = None,
        *,
        copy_headers: bool = True,
        idempotent_by: IdempotentBy | None = None,
    ) -> Callable[[F], F]:
        """Call the function for each message of an input binding; see :func:`streamkit.stream_listener`."""
        listener = Listener(name_of(binding), condition, copy_headers, idempotent_by)

        def register(function: F) -> F:
            _check_function(function)
            self._registrations.declare(function, listener)
            return function

        return register

    def error_listener(self, channel: str = "errorChannel") -> Callable[[F], F]:
        """Call the function for each failure sent to an error channel; see :func:`streamkit.error_listener`."""

        def register(function: F) -> F:
            _check_function(function)
            self._registrations.declare(function, ErrorListener(channel))
            return function

        return register

    @overload
    def function(self, name: F, /) -> F: ...
    @overload
    def function(self, name: str | None = None, /, *, polled: bool = False) -> Callable[[F], F]: ...
    def function(self, name: F | str | None = None, /, *, polled: bool = False) -> F | Callable[[F], F]:
        """Register a function that settings bind by its name; see :func:`streamkit.function`."""

        def register(function: F) -> F:
            _check_function(function)
            chosen = name if isinstance(name, str) else None
            self._registrations.declare(function, function_declaration(function, chosen, polled=polled))
            return function

        return register(name) if callable(name) else register

    def feed(self, output: BindingName, make: "Callable[[Self], Feeder]") -> None:
        """Add a feeder, an object that sends messages to an output binding of its own accord.

        Args:
            output: The output binding.
            make: Called with the application at each run; returns the feeder. The feeder is started when the binding
                is bound, and stopped before the binding is unbound.
        """
        self._registrations.declare(self, FeederDeclaration(name_of(output), make))

    def message_routing_callback(self, callback: RoutingCallback) -> RoutingCallback:
        """Select the function for each message of the routing function, `functionRouter-in-0`, by ``callback``.

        If the callback returns None, headers and settings select the function.
        """
        self._registrations.routing_callback = callback
        return callback

    def transaction_listener(self, group: str) -> Callable[[F], F]:
        """Make a function or a class the transaction listener of a producer group.

        See :func:`streamkit.listeners.listener.transaction_listener`.
        """

        def register(target: F) -> F:
            self._registrations.declare(target, TransactionGroup(group))
            return target

        return register

    send_to = staticmethod(send_to)

    def enable_binding(self, *interfaces: type) -> None:
        """Bind the channels that interfaces declare, such as `Source` and `Sink`.

        Raises:
            TypeError: An interface declares no channels.
        """
        for interface in interfaces:
            list(declarations_of(interface))
        self._registrations.declare(self, *map(EnabledBinding, interfaces))

    def include(self, *sources: object) -> None:
        """Add decorated functions, and modules, classes or objects with such functions."""
        self._registrations.sources.extend(sources)

    def on_new_destination(
        self, callback: "Callable[[NewDestination], object]"
    ) -> "Callable[[NewDestination], object]":
        """Call ``callback`` with each output binding that is created because data is sent to a new name.

        The callback may replace the settings of the binding::

            new.properties = new.properties.model_copy(update={"destination": "elsewhere"})
        """
        self._registrations.on_new_destination = callback
        return callback

    def add_interceptor(self, interceptor: ChannelInterceptor, *patterns: str, order: int = 0) -> None:
        """Add an interceptor to the bound channels whose names match a pattern.

        Args:
            interceptor: The interceptor.
            patterns: Patterns of channel names; see :meth:`streamkit.messaging.GlobalChannelInterceptors.add`.
            order: The interceptor's place among the interceptors of a channel; see there.
        """
        self._registrations.interceptors.add(interceptor, *patterns, order=order)

    def register(self, name: str, value: object) -> None:
        """Register an object under a name that settings can refer to.

        Args:
            name: The name.
            value: The object, such as an error handler, a retry policy or a partition key extractor.

        Raises:
            ValueError: Another object has this name.
        """
        self._named.add(name, value)

    def named(self, name: str) -> Callable[[F], F]:
        """Register the decorated function or class under `name`, as :meth:`register` does."""

        def register(value: F) -> F:
            self._named.add(name, value)
            return value

        return register

    def use_retry_policy(self, policy: "RetryPolicy") -> None:
        """Retry by `policy` in every binding that does not name another one by `retry-template-name`."""
        self._retry_policy = policy

    def customize_consumer(self, function: "C") -> "C":
        """Call `function(consumer, destination)` with each consumer that a binder creates, before the consumer starts.

        `consumer` is the binder's own object, such as a `rocket_client.PushConsumer`. If the parameter is annotated
        with a class, the function is called for consumers of that class only.
        """
        self._registrations.customizers.add_consumer(function)
        return function

    def customize_producer(self, function: "P") -> "P":
        """Call `function(producer, destination)` with each producer; see :meth:`customize_consumer`."""
        self._registrations.customizers.add_producer(function)
        return function

    def customize_binder(self, function: "B") -> "B":
        """Call `function(binder)` with each binder after its creation, before it starts."""
        self._registrations.customizers.add_binder(function)
        return function


def _check_function(function: Callable[..., object]) -> None:
    """Refuse a class, and a function defined in the body of a class: there is no object to call it on.

    Raises:
        TypeError: The function is such a method, or a class.
    """
    refuse_class(function)
    scope = function.__qualname__.rpartition(".")[0] if isinstance(function, FunctionType) else ""
    if scope and not scope.endswith("<locals>"):
        raise TypeError(
            f"{function.__qualname__} is a method: decorate it with streamkit.stream_listener, and give its class "
            "to the application"
        )
