"""Assembly of an application: it finds the listeners, determines the bindings, and subscribes the handlers.

Errors are collected and raised together, before anything is connected.
"""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, cast, get_args, get_origin

from streamkit.assembly.anonymous_groups import log_anonymous_inputs
from streamkit.assembly.collector import Collector
from streamkit.assembly.registrations import Declared, PolledInput, Registrations
from streamkit.binder.binding_service import BindingService
from streamkit.binder.channels import Channels
from streamkit.binder.error_channels import ErrorFunction
from streamkit.binder.factory import BindingFactory
from streamkit.binder.feeding import FeederDeclaration
from streamkit.binder.ignored_settings import judged
from streamkit.binder.local_transactions import TransactionHandlers
from streamkit.bridge import StreamBridge
from streamkit.config.judgement import ExistingBindings
from streamkit.config.relaxed import uniform
from streamkit.errors import ConfigurationError, ConfigurationErrors, ExpressionError
from streamkit.expression import Expression, compile_expression
from streamkit.functions.catalog import ROUTER, BoundFunction, FunctionCatalog
from streamkit.functions.definition import Definition
from streamkit.functions.routing import FunctionRouter
from streamkit.functions.settings import FunctionSettings
from streamkit.functions.wiring import FunctionWiring
from streamkit.listeners.advice import (
    AdvisedHandler,
    AdvisedListener,
    AdvisedProviders,
    ListenerAdvice,
    WatchedThreads,
    advised_outputs,
)
from streamkit.listeners.arguments import ProviderLookup, annotations_of, describe, plan_arguments
from streamkit.listeners.batch_listener import BATCH_HEADERS, BatchListenerHandler, plan_batch_arguments
from streamkit.listeners.binding_interfaces import (
    Direction,
    EnabledBinding,
    bound_interface,
    declarations_of,
    declares_channels,
)
from streamkit.listeners.function_declaration import FunctionDeclaration
from streamkit.listeners.injection import Injection
from streamkit.listeners.input_settings import InputSettings
from streamkit.listeners.invocation import (
    ErrorListenerOnThread,
    ListenerDispatch,
    ListenerHandler,
    Outputs,
    SendElsewhere,
)
from streamkit.listeners.listener import ErrorListener, Listener, SendTo, TransactionGroup, outputs_on
from streamkit.listeners.listener_threads import ListenerPools
from streamkit.listeners.polled_binding import PolledBinding
from streamkit.listeners.results import check_result, warn_of_lost_result
from streamkit.listeners.transactions import prepare_listener
from streamkit.messaging.channel import SubscribableChannel
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.handler import Handler, is_async

__all__ = ["Assembly"]

logger = logging.getLogger(__name__)

_TRANSACTION_THREADS: Final = 8
_DEFAULT_CONTENT_TYPE: Final = "application/json"

Advise: TypeAlias = Callable[[object, AdvisedListener], ListenerAdvice | None]
"""Returns the advice of plugins for a listener of an application, or None."""
Judge: TypeAlias = Callable[[ExistingBindings], list[ConfigurationError]]
"""A function that judges the settings of bindings; `streamkit.config.judgement.judge_bindings`."""


@dataclass(slots=True)
class _Registered:
    """A listener of one input."""

    function: Callable[..., object]
    listener: Listener


@dataclass(slots=True)
class _Names:
    """The names of the bindings of one direction: uniform name to the first spelling used."""

    spelt: dict[str, str] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self.spelt.setdefault(uniform(name), name)

    def __contains__(self, name: str) -> bool:
        return uniform(name) in self.spelt

    def __iter__(self) -> Iterator[str]:
        return iter(self.spelt.values())


class Assembly:
    """The assembly of an application for one run; :meth:`disassemble` undoes it.

    Attributes:
        wiring: The functions of the application.
        polled_bindings: The polled bindings, by their uniform names.
    """

    def __init__(
        self,
        application: object,
        registrations: Registrations,
        functions: FunctionSettings,
        *,
        inputs: InputSettings,
        bindings: BindingService,
        channels: Channels,
        converter: CompositeMessageConverter,
        injection: Injection,
        threads: ListenerPools,
        bridge: StreamBridge,
        catalog: FunctionCatalog,
        wiring: FunctionWiring,
        judge: Judge,
        advise: Advise,
    ) -> None:
        """Create an empty assembly; :meth:`assemble` fills it.

        Args:
            application: The application, for constructors and feeders that ask for it.
            registrations: The listeners, functions and bindings registered with the application.
            functions: The settings of functions.
            inputs: The settings of inputs.
            bindings: The service that the bindings are added to.
            channels: The channels of bindings.
            converter: Converts payloads.
            injection: Resolves the markers of containers.
            threads: The threads of `def` listeners; closed by :meth:`disassemble`.
            bridge: Sends to bindings by name.
            catalog: The functions that settings can bind.
            wiring: Creates the stages of functions.
            judge: Returns the errors of settings for bindings that do not exist; warns of settings without effect.
            advise: Returns the advice of plugins for a listener.
        """
        self._application = application
        self._advise = advise
        self._judge = judge
        self._registrations = registrations
        self._functions_settings = functions
        self._stream = inputs.bindings.stream
        self._bindings = bindings
        self._channels = channels
        self._converter = converter
        self._injection = injection
        self._bridge = bridge
        self._input_settings = inputs
        self._factory: BindingFactory = bindings.factory
        self._errors: list[ConfigurationError] = []
        self._inputs = _Names()
        self._outputs = _Names()
        self._polled = _Names()
        self._polled_by_code: list[str] = []
        self.polled_bindings: dict[str, PolledBinding] = {}
        self._listeners: dict[str, list[_Registered]] = {}
        self._error_listeners: list[tuple[Callable[..., object], str]] = []
        self._subscribed: list[tuple[SubscribableChannel, Handler]] = []
        self._threads = threads
        self._catalog = catalog
        self.wiring = wiring
        self._bound: list[BoundFunction] = []
        self._feeders: list[FeederDeclaration] = []
        self._factory.transactions.prepare_with(self._transaction_handlers)

    def construct(self, kind: type) -> object:
        """Return an instance of a class of listeners; its constructor gets the objects that its annotations ask for.

        Raises:
            ConfigurationError: The application has no object for a parameter, or an annotation cannot be resolved.
        """
        signature = inspect.signature(kind)
        hints = annotations_of(kind.__init__) if signature.parameters else {}  # type: ignore[misc]  # perhaps inherited
        arguments: dict[str, object] = {}
        for parameter in signature.parameters.values():
            found, value = self._injected(parameter, hints.get(parameter.name, Any))
            if found:
                arguments[parameter.name] = value
            elif parameter.default is inspect.Parameter.empty:
                raise ConfigurationError(
                    f"{kind.__qualname__} asks for {parameter.name!r}, which the application cannot provide: annotate "
                    "it with a binding interface, StreamBridge, StreamApplication or Provide[...], or give the "
                    "application an instance"
                )
        return kind(**arguments)

    def _injected(self, parameter: inspect.Parameter, hint: object) -> tuple[bool, object]:
        type_, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        for mark in (*marks, parameter.default):
            provide = self._injection.find(mark)
            if provide is not None:
                return True, provide()
        if type_ is StreamBridge:
            return True, self._bridge
        if isinstance(type_, type):
            if isinstance(self._application, type_) and type_ is not object:
                return True, self._application
            if declares_channels(type_):
                self.interface(type_)
                return True, bound_interface(type_, self._channels)
        return False, None

    def _fail(self, reason: str) -> None:
        """Record a configuration error."""
        self._errors.append(ConfigurationError(reason))

    def interface(self, interface: type) -> None:
        """Add bindings for the channels that an interface declares."""
        with self._collected():
            for declaration in declarations_of(interface):
                names = self._inputs if declaration.direction is Direction.INPUT else self._outputs
                names.add(declaration.name)

    def add(self, declared: Declared) -> None:
        """Register a declaration on a function, a class, an object or the application.

        Raises:
            TypeError: The declaration is of an unknown kind.
        """
        target = declared.target
        match declared.declaration:
            case EnabledBinding(interface):
                self.interface(interface)
            case Listener() as listener:
                with self._collected():
                    self.listener(target, listener)
            case SendTo():
                pass  # read with the function's listeners
            case ErrorListener(channel):
                with self._collected():
                    self.error_listener(target, channel)
            case FunctionDeclaration() as declaration:
                self.named_function(target, declaration)
            case FeederDeclaration() as feeder:
                self._feeders.append(feeder)
            case TransactionGroup(group):
                self.transaction_listener(target, group)
            case PolledInput(name):
                self._polled_by_code.append(name)
            case unknown:
                raise TypeError(f"{unknown!r} is not a declaration that an application can register")

    def listener(self, function: Callable[..., object], listener: Listener) -> None:
        """Register a listener of an input.

        Raises:
            ConfigurationError: The same function is registered already, so each message would be handled twice.
        """
        registered = self._listeners.setdefault(uniform(listener.binding), [])
        if any(each.function == function and each.listener.condition == listener.condition for each in registered):
            raise ConfigurationError(
                f"listener {describe(function)} is registered twice for binding {listener.binding!r}, so it would "
                "handle each message twice: remove one of its decorators"
            )
        registered.append(_Registered(function, listener))

    def named_function(self, function: Callable[..., object], declaration: FunctionDeclaration) -> None:
        """Register a function that settings can bind."""
        with self._collected():
            self._catalog.add(function, declaration)

    def error_listener(self, function: Callable[..., object], channel: str) -> None:
        """Register a listener of an error channel.

        Raises:
            ConfigurationError: The same function is registered already.
        """
        if (function, channel) in self._error_listeners:
            raise ConfigurationError(
                f"error listener {describe(function)} is registered twice for channel {channel!r}, so it would handle "
                "each failure twice: remove one of its decorators"
            )
        self._error_listeners.append((function, channel))
        handler: Handler = function
        if not is_async(function):
            handler = ErrorListenerOnThread(function, lambda: self._threads.get(channel, 1))
        self._subscribe(self._channels[channel], handler)

    def transaction_listener(self, target: object, group: str) -> None:
        """Register the transaction listener of a producer group: a function, an object, or a class to instantiate."""
        with self._collected():
            listener = self.construct(target) if isinstance(target, type) else target
            self._factory.transactions.add(group, self._transaction_handlers(listener, group))

    def _transaction_handlers(self, listener: object, group: str) -> TransactionHandlers:
        return prepare_listener(
            listener,
            lambda: self._threads.get(f"{group} transactions", _TRANSACTION_THREADS),
            lambda type_: self._converter.payload_reader(type_, _DEFAULT_CONTENT_TYPE),
            self._injection,
        )

    def _error_function(self, function: Callable[..., object]) -> ErrorFunction:
        """Return a coroutine function that calls the error handler named by a setting.

        Raises:
            ConfigurationError: The function cannot be called with one argument.
        """
        try:
            inspect.signature(function).bind(None)
        except TypeError as error:
            raise ConfigurationError(
                f"{describe(function)} cannot handle errors: it is called with one ErrorMessage, and {error}"
            ) from error
        if is_async(function):
            return cast("ErrorFunction", function)
        return ErrorListenerOnThread(function, lambda: self._threads.get("error handler", 1)).handle_message

    def assemble(self) -> None:
        """Collect the registrations, create the bindings and subscribe the listeners.

        Raises:
            ConfigurationError: There is one error.
            ConfigurationErrors: There are several errors; it contains all of them.
        """
        for declared in Collector(self._registrations, self.construct, self._fail):
            self.add(declared)
        settings = self._stream
        with self._collected():
            self._factory.find_error_handlers(self._error_function)
        for name in settings.input_bindings:
            self._inputs.add(name)
        renamed = map(self._functions_settings.binding, settings.source_bindings)
        for name in (*renamed, *settings.output_bindings):
            self._outputs.add(name)
        before = len(self._errors)
        self._bind_functions()
        self._collect_polled()
        self._collect_names()
        knows_names = len(self._errors) == before
        for bound in self._bound:
            with self._collected():
                self.wiring.connect(bound)
        for name in self._outputs:
            with self._collected():
                self._output(name)
        for name in self._inputs:
            with self._collected():
                self._input(name)
        with self._collected():
            self._factory.check_defaults()
        if knows_names:
            self._errors.extend(self._judge(self._existing()))
        # Each error once: a wrong setting of a binder is reported by every binding that uses the binder.
        errors = list({str(error): error for error in self._errors}.values())
        if errors:
            raise errors[0] if len(errors) == 1 else ConfigurationErrors(errors)
        log_anonymous_inputs(settings, self._inputs)

    def _existing(self) -> ExistingBindings:
        """Return the bindings that the application makes."""
        polled = {uniform(name) for bound in self._bound if not bound.inputs for name in bound.outputs}
        # The routing function sends what other functions return by the name of its output, which is made then.
        router = [self._functions_settings.binding(name) for name in (ROUTER.input(0), ROUTER.output(0))]
        routed = router[1:] if uniform(router[0]) in self.wiring.stages else []
        return ExistingBindings(
            [*self._inputs, *self._outputs, *routed, *self._stream.dynamic_destinations],
            [
                judged(
                    binding,
                    self._factory.settings.properties(binding.name),
                    has_policy=self._factory.has_retry_policy,
                    is_polled_supplier=uniform(binding.name) in polled,
                )
                for binding in self._bindings.bindings.values()
            ],
            [
                *(name for bound in self._bound for name in bound.names),
                *self._stream.source_bindings,
                ROUTER.input(0),
                ROUTER.output(0),
            ],
            self._catalog.names,
        )

    def _output(self, name: str) -> None:
        binding = self._factory.output(name, self._channels[name])
        for declaration in self._feeders:
            if uniform(declaration.output) == uniform(name):
                binding.feeders.append(declaration.make(self._application))
        self._bindings.add(binding)

    def _bind_functions(self) -> None:
        """Determine the bindings of the functions that settings bind."""
        with self._collected():
            for definition in self._catalog.definitions():
                with self._collected():
                    self._bind_function(definition)

    def _bind_function(self, definition: Definition) -> None:
        if definition == ROUTER:
            router = FunctionRouter(
                self._functions_settings,
                self._catalog,
                self.wiring,
                self._bridge,
                self._registrations.routing_callback,
            )
            router.prepare()
            self.wiring.stages[uniform(router.input)] = router
            self._inputs.add(router.input)
            return
        bound = self._catalog.plan(definition, self._functions_settings.definition_value)
        self._bound.append(bound)
        for name in bound.inputs:
            self._inputs.add(name)
        for name in bound.outputs:
            self._outputs.add(name)

    def _collect_names(self) -> None:
        """Add the bindings that listeners and feeders name to the inputs and outputs."""
        declared = [*self._inputs, *self._outputs]
        for registered in (each for listeners in self._listeners.values() for each in listeners):
            who = f"listener {describe(registered.function)}"
            self._name(registered.listener.binding, who, self._inputs, declared)
            for output in outputs_on(registered.function):
                self._name(output, f"@send_to of {who}", self._outputs, declared)
        for declaration in self._feeders:
            self._name(declaration.output, "what feeds an output", self._outputs, declared)
        for name in self._inputs:
            if name in self._outputs:
                self._errors.append(
                    ConfigurationError(
                        f"binding {name!r} is used as an input and as an output: give each of them a name of its own"
                    )
                )

    def _name(self, name: str, who: str, names: _Names, declared: Iterable[str]) -> None:
        if name in names:
            return
        if self._factory.settings.is_configured(name):
            names.add(name)
        else:
            self._errors.append(self._factory.settings.unknown(name, who, declared))

    def _collect_polled(self) -> None:
        """Add the bindings of pollable sources to the inputs."""
        for name in self._stream.pollable_source:
            self._polled.add(f"{name}-in-0")
        for name in self._polled_by_code:
            if f"{name}-in-0" not in self._polled:
                self._polled.add(name)
        for name in self._polled:
            self._inputs.add(name)

    def polled(self, name: str) -> PolledBinding | None:
        """Return the polled binding of this name, or the one to which `pollable-source` gives this name."""
        found = self.polled_bindings.get(uniform(name))
        return found or self.polled_bindings.get(uniform(f"{name}-in-0"))

    def _polled_input(self, name: str) -> None:
        if uniform(name) in self._listeners or uniform(name) in self.wiring.stages:
            raise ConfigurationError(
                f"binding {name!r} is polled, and has a listener or function: give one of them a binding of its own"
            )
        binding = self._factory.input(name, self._channels[name], polled=True)
        self._bindings.add(binding)
        self.polled_bindings[uniform(name)] = PolledBinding(binding, self._input_settings, self._threads)

    def _input(self, name: str) -> None:
        if name in self._polled:
            self._polled_input(name)
            return
        registered = self._listeners.get(uniform(name), [])
        if len(registered) > 1 and self._input_settings.is_batch(name):
            raise ConfigurationError(
                f"binding {name!r} is in batch mode, so it has one listener: "
                + ", ".join(describe(each.function) for each in registered)
            )
        channel = self._channels[name]
        stage = self.wiring.stages.get(uniform(name))
        if stage is not None:
            if registered:
                raise ConfigurationError(
                    f"binding {name!r} is the input of a function, and of {describe(registered[0].function)}: give one "
                    "of them a binding of its own"
                )
            self._subscribe(channel, stage)
            self._bindings.add(self._factory.input(name, channel, manual=stage.settles_by_hand))
            return
        advice = [self._advice(name, each, len(registered) > 1) for each in registered]
        handlers = [self._handler(name, *each) for each in zip(registered, advice, strict=True)]
        for each, handler in zip(registered, handlers, strict=True):
            if handler.condition is not None and handler.returns_messages:
                raise ConfigurationError(
                    f"listener {describe(each.function)} has a condition, so it must return nothing and have no "
                    "@send_to: send to another binding from within, through a channel or StreamBridge"
                )
        if len(handlers) > 1 and any(handler.returns_messages for handler in handlers):
            raise ConfigurationError(
                f"binding {name!r} has {len(handlers)} listeners, so none of them may have @send_to: "
                + ", ".join(describe(each.function) for each in registered)
            )
        called = [
            handler if each is None else AdvisedHandler(handler, each)
            for handler, each in zip(handlers, advice, strict=True)
        ]
        if len(handlers) == 1 and handlers[0].condition is None:
            self._subscribe(channel, called[0])
        elif handlers:
            conditions = [handler.condition for handler in handlers]
            self._subscribe(channel, ListenerDispatch(name, list(zip(conditions, called, strict=True))))
        elif not channel.subscribers and not self._errors:  # one of these errors may explain the lack
            logger.warning("Binding %r has no listener: its messages fail until one subscribes", name)
        manual = any(handler.settles_by_hand for handler in handlers)
        self._bindings.add(self._factory.input(name, channel, manual=manual))

    def late_input(self, name: str, listeners: Iterable[Callable[..., object]]) -> None:
        """Create an input binding with its listeners while the application runs.

        Raises:
            ConfigurationError: The settings or the listeners are invalid.
        """
        try:
            for function in listeners:
                self.listener(function, Listener(name))
            self._input(name)
        except ConfigurationError:
            self.drop_input(name)
            raise

    def drop_input(self, name: str) -> None:
        """Unsubscribe the listeners of an input that could not be created."""
        self._listeners.pop(uniform(name), None)
        channel = self._channels[name]
        dropped = [each for each in self._subscribed if each[0] is channel]
        self._subscribed = [each for each in self._subscribed if each[0] is not channel]
        for _, handler in dropped:
            channel.unsubscribe(handler)

    def _pool(self, binding: str) -> Executor:
        return self._threads.get(binding, self._input_settings.width(binding))

    def _advice(self, binding: str, registered: _Registered, shares_binding: bool) -> ListenerAdvice | None:
        """Return the advice of plugins for a listener, or None."""
        advised = AdvisedListener(
            registered.function,
            describe(registered.function),
            registered.listener,
            binding,
            self._input_settings.bindings.properties(binding).group,
            shares_binding,
            is_async(registered.function),
            lambda: self._pool(binding),
        )
        return self._advise(self._application, advised)

    def _handler(self, binding: str, registered: _Registered, advice: ListenerAdvice | None) -> ListenerHandler:
        function, listener = registered.function, registered.listener
        outputs: Sequence[Outputs] = [self._channels[name] for name in outputs_on(function)]
        elsewhere: SendElsewhere = self._bridge.asend
        providers: ProviderLookup = self._injection
        if advice is not None:
            outputs, elsewhere = advised_outputs(advice, outputs, elsewhere)
            providers = AdvisedProviders(advice, providers)
        is_batch = self._input_settings.is_batch(binding)
        if outputs:
            check_result(function, self._input_settings.reader_factory(binding))
        elif not is_batch:
            warn_of_lost_result(function)
        if is_batch and listener.condition:
            raise ConfigurationError(
                f"listener {describe(function)} has a condition, but binding {binding!r} is in batch mode: select "
                "the messages in the listener"
            )
        kind = BatchListenerHandler if is_batch else ListenerHandler
        plan = plan_batch_arguments if is_batch else plan_arguments
        not_copied = self._input_settings.not_propagated
        planned = plan(function, self._input_settings.reader_factory(binding), providers)
        if advice is not None and planned.takes_acknowledgment:
            raise ConfigurationError(
                f"listener {describe(function)} takes an Acknowledgment, so whether it is done is not known when it "
                "returns: remove the parameter, or set idempotent_by=False"
            )
        return kind(
            function,
            listener,
            planned,
            condition=self._condition(function, listener),
            is_async=is_async(function),
            pool=lambda: self._pool(binding) if advice is None else WatchedThreads(self._pool(binding)),
            outputs=outputs,
            elsewhere=elsewhere,
            not_copied=(*not_copied, BATCH_HEADERS) if is_batch else not_copied,
        )

    def _condition(self, function: Callable[..., object], listener: Listener) -> Expression | None:
        if not listener.condition:
            return None
        try:
            return compile_expression(listener.condition)
        except ExpressionError as error:
            raise ConfigurationError(f"the condition of listener {describe(function)}: {error}") from error

    def _subscribe(self, channel: SubscribableChannel, handler: Handler) -> None:
        if channel.subscribe(handler):
            self._subscribed.append((channel, handler))

    def disassemble(self) -> None:
        """Unsubscribe all handlers and shut down the listeners' threads; running calls are not awaited."""
        for channel, handler in self._subscribed:
            channel.unsubscribe(handler)
        self._threads.close()
        self._subscribed.clear()

    @contextmanager
    def _collected(self) -> Iterator[None]:
        try:
            yield
        except ConfigurationErrors as found:
            self._errors.extend(found.errors)
        except ConfigurationError as error:
            self._errors.append(error)
