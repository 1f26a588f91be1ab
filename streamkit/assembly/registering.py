"""What an application is told before it starts: listeners, functions, bindings, named objects, customizers."""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from streamkit.assembly.registrations import Registrations
from streamkit.binder.feeding import FeederDeclaration
from streamkit.binder.named_objects import NamedObjects
from streamkit.functions.routing_callback import RoutingCallback
from streamkit.listeners.binding_interfaces import declarations_of
from streamkit.listeners.function_declaration import declare
from streamkit.listeners.listener import BindingName, Listener, name_of, send_to
from streamkit.messaging.interceptor import ChannelInterceptor

if TYPE_CHECKING:  # slow to import, and needed only when the application starts
    from dependency_injector.containers import Container

    from streamkit.binder.attempts import RetryPolicy
    from streamkit.binder.binder import ConsumerDestination, ProducerDestination
    from streamkit.binder.binding import Feeder
    from streamkit.binder.factory import NewDestination

__all__ = ["Registering"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound="Callable[[Any, ConsumerDestination], object]")
P = TypeVar("P", bound="Callable[[Any, ProducerDestination], object]")
B = TypeVar("B", bound=Callable[[Any], object])


class Registering:
    """The decorators and methods by which an application is told what to run."""

    def __init__(self, sources: Sequence[object], container: "Container | None") -> None:
        self._registrations = Registrations(sources)
        self._named = NamedObjects(() if container is None else (container,))
        self._retry_policy: RetryPolicy | None = None

    def stream_listener(
        self, binding: BindingName, condition: str | None = None, *, copy_headers: bool = True
    ) -> Callable[[F], F]:
        """Call the function for each message of an input binding; see :func:`streamkit.stream_listener`."""
        listener = Listener(name_of(binding), condition, copy_headers)

        def register(function: F) -> F:
            _check_function(function)
            self._registrations.listeners.append((function, listener))
            return function

        return register

    def error_listener(self, channel: str = "errorChannel") -> Callable[[F], F]:
        """Call the function for each failure told on a channel; see :func:`streamkit.error_listener`."""

        def register(function: F) -> F:
            _check_function(function)
            self._registrations.error_listeners.append((function, channel))
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
            declaration = declare(function, name if isinstance(name, str) else None, polled=polled)
            self._registrations.functions.append((function, declaration))
            return function

        return register(name) if callable(name) else register

    def feed(self, output: BindingName, make: "Callable[[Self], Feeder]") -> None:
        """Have something send to an output binding by itself: made for each run, started when the binding is bound,
        stopped before it is unbound.
        """
        self._registrations.feeders.append(FeederDeclaration(name_of(output), make))

    def message_routing_callback(self, callback: RoutingCallback) -> RoutingCallback:
        """Have ``callback`` choose the function of each message of the routing function, `functionRouter-in-0`; where
        it returns None, headers and settings choose.
        """
        self._registrations.routing_callback = callback
        return callback

    def transaction_listener(self, group: str) -> Callable[[F], F]:
        """Have a function or a class answer for the transactions of a producer group; see
        :func:`streamkit.listeners.transactions.transaction_listener`.
        """

        def register(target: F) -> F:
            self._registrations.transaction_listeners.append((target, group))
            return target

        return register

    send_to = staticmethod(send_to)

    def enable_binding(self, *interfaces: type) -> None:
        """Bind the channels that interfaces declare, such as `Source` and `Sink`."""
        for interface in interfaces:
            list(declarations_of(interface))
        self._registrations.interfaces.extend(interfaces)

    def include(self, *sources: object) -> None:
        """Add modules, classes or objects with decorated functions."""
        self._registrations.sources.extend(sources)

    def on_new_destination(
        self, callback: "Callable[[NewDestination], object]"
    ) -> "Callable[[NewDestination], object]":
        """Have ``callback`` see the settings of each output binding that is made because somebody sends to a new name.

        It may replace them: ``new.properties = new.properties.model_copy(update={"destination": "elsewhere"})``.
        """
        self._registrations.on_new_destination = callback
        return callback

    def add_interceptor(self, interceptor: ChannelInterceptor, *patterns: str, order: int = 0) -> None:
        """Have ``interceptor`` see what passes the bound channels whose names match; see
        :meth:`streamkit.messaging.GlobalChannelInterceptors.add`.
        """
        self._registrations.interceptors.add(interceptor, *patterns, order=order)

    def register(self, name: str, value: object) -> None:
        """Have settings find `value` under `name`: an error handler, a retry policy, a partition key extractor.

        Raises:
            ValueError: Another object has that name.
        """
        self._named.add(name, value)

    def named(self, name: str) -> Callable[[F], F]:
        """Have settings find the function or class under `name`, as :meth:`register` does."""

        def register(value: F) -> F:
            self._named.add(name, value)
            return value

        return register

    def use_retry_policy(self, policy: "RetryPolicy") -> None:
        """Have every binding retry by `policy`, but those that name another by `retry-template-name`."""
        self._retry_policy = policy

    def customize_consumer(self, function: "C") -> "C":
        """Call `function(consumer, destination)` with each consumer a binder makes, before it starts.

        `consumer` is the binder's own object, such as a `rocket_client.PushConsumer`; annotated with a class, the
        function is called for those of that class only.
        """
        self._registrations.customizers.add_consumer(function)
        return function

    def customize_producer(self, function: "P") -> "P":
        """Call `function(producer, destination)` as :meth:`customize_consumer` does, with each producer."""
        self._registrations.customizers.add_producer(function)
        return function

    def customize_binder(self, function: "B") -> "B":
        """Call `function(binder)` with each binder when it is made, before it starts."""
        self._registrations.customizers.add_binder(function)
        return function


def _check_function(function: Callable[..., object]) -> None:
    """Refuse a function written in the body of a class: there is no object to call it on."""
    scope = function.__qualname__.rpartition(".")[0] if isinstance(function, FunctionType) else ""
    if scope and not scope.endswith("<locals>"):
        raise TypeError(
            f"{function.__qualname__} is a method: decorate it with streamkit.stream_listener, and give its class "
            "to the application"
        )
