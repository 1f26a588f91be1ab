"""The application: listeners and bindings, started and stopped together.

::

    app = StreamApplication()

    @app.stream_listener("orders")
    @send_to("receipts")
    async def charge(order: Order) -> Receipt: ...

    app.run()                  # until a signal: the first one stops gracefully, the second one at once
    async with app: ...        # on the running loop
    with app: ...              # on a loop of its own, in a thread of its own
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from streamkit.assembly.registrations import PolledInput
from streamkit.assembly.setup import ApplicationSetup
from streamkit.binder.channels import Channels
from streamkit.bridge import StreamBridge
from streamkit.errors import ApplicationError, StreamkitError
from streamkit.listeners.binding_interfaces import bound_interface
from streamkit.listeners.listener import BindingName, name_of
from streamkit.listeners.pollable_source import PollableMessageSource
from streamkit.messaging.channel import SubscribableChannel, running_loop
from streamkit.messaging.message_converter import MessageConverter
from streamkit.messaging.portal import LoopPortal, Portal
from streamkit.running.background import BackgroundLoop
from streamkit.running.foreground import run_until_signal

if TYPE_CHECKING:  # importing these is slow, and only a started application needs them
    from datetime import datetime

    from dependency_injector.containers import Container

    from streamkit.binder.binding import Binding
    from streamkit.clock import Clock
    from streamkit.config.environment import Environment
    from streamkit.config.origin import Scalar
    from streamkit.container import ApplicationContainer
    from streamkit.management.bindings_controller import BindingsController
    from streamkit.management.health import HealthComponent
    from streamkit.plugins.application_plugins import ApplicationPlugins
    from streamkit.running.runtime import Runtime
    from streamkit.testing.harness import Harness

__all__ = ["StreamApplication"]

logger = logging.getLogger(__name__)

I = TypeVar("I")  # noqa: E741  # a binding interface


class StreamApplication(ApplicationSetup):
    """An application: its listeners, functions and bindings, started and stopped together.

    ``app.run()`` runs the application until a signal arrives, ``async with app`` on the running loop, ``with app`` on a
    loop of its own in a thread, and ``app.test()`` in memory and on virtual time.

    Attributes:
        bridge: Sends data to output bindings by name.
        channels: The channels by name; looking up a new name creates the channel.
    """

    def __init__(
        self,
        *sources: object,
        config_location: "str | Path | None" = None,
        properties: "Mapping[str, Scalar] | None" = None,
        args: Sequence[str] | None = None,
        environment: "Environment | None" = None,
        container: "Container | None" = None,
        converters: Sequence[MessageConverter] = (),
        plugins: Sequence[object] = (),
    ) -> None:
        """Create an application; nothing is read or connected until it starts.

        Args:
            sources: Decorated functions, and modules, classes and objects with such functions. A class is instantiated
                when the application starts; its constructor gets the objects that its annotations ask for.
            config_location: Settings files or directories, in place of those in the current directory.
            properties: Settings that take precedence over all others.
            args: Settings as command-line arguments (`--key=value`); :meth:`run` uses the arguments of the process if
                these are not given.
            environment: Settings that are already loaded. No other source is read then; arguments of :meth:`run` take
                precedence over them.
            container: A dependency-injector container, in which `Provide[...]` markers are looked up.
            converters: Message converters, tried before the built-in ones.
            plugins: Modules or objects with hooks of :mod:`streamkit.plugins.hooks`; they precede installed plugins.
        """
        super().__init__(sources, container)
        self.bridge = StreamBridge(self._required_runtime)
        self._config_location = config_location
        self._properties = properties
        self._args = args
        self._own_container = container
        self._converters = tuple(converters)
        self._given_plugins = tuple(plugins)
        self._given_environment = environment
        self._environment = environment
        self._container: ApplicationContainer | None = None
        self._runtime: Runtime | None = None
        self._starts_in_test: int | None = None  # how often the code that a test runs has started this; None: no test
        self._stopping: asyncio.Task[None] | None = None
        self._background: BackgroundLoop | None = None
        self._stop_requested: Callable[[], None] | None = None

    # Parts

    @property
    def environment(self) -> "Environment":
        """The settings, each with its origin; they are loaded on first access."""
        if self._environment is None:
            from streamkit.config.environment import Environment

            self._environment = Environment.load(
                config_location=self._config_location,
                arguments=self._args or (),
                overrides=self._properties,
                more_sources=self.plugins.settings_sources,
            )
        return self._environment

    @property
    def container(self) -> "ApplicationContainer":
        """The container of the application's parts; override a part before the application starts."""
        if self._container is None:
            from dependency_injector import providers

            from streamkit.container import ApplicationContainer

            self._container = ApplicationContainer(
                application=providers.Object(self),
                application_name=providers.Callable(lambda: self.name),
                environment=providers.Callable(lambda: self.environment),
                given_plugins=providers.Object(self._given_plugins),
                converters=providers.Object(self._converters),
                named_objects=providers.Object(self._named),
                retry_policy=providers.Callable(lambda: self._retry_policy),
                customizers=providers.Callable(lambda: self._registrations.customizers),
                registrations=providers.Object(self._registrations),
                bridge=providers.Object(self.bridge),
                searched=providers.Callable(lambda: self.containers),
            )
        return self._container

    @property
    def plugins(self) -> "ApplicationPlugins":
        """The plugins given to the constructor, followed by the installed ones."""
        plugins: ApplicationPlugins = self.container.plugins()
        return plugins

    @property
    def containers(self) -> "tuple[Container, ...]":
        """The containers in which names and markers are looked up: the user's own, if given, then the application's."""
        return (self.container,) if self._own_container is None else (self._own_container, self.container)

    @property
    def name(self) -> str:
        """The value of `spring.application.name`; `application` if it is not set."""
        return self.environment.text("spring.application.name") or "application"

    @property
    def clock(self) -> "Clock":
        """The clock that stamps messages."""
        clock: Clock = self.container.clock()
        return clock

    @property
    def channels(self) -> Channels:
        """The channels by name; looking up a new name creates the channel."""
        channels: Channels = self.container.channels()
        return channels

    def channel(self, name: BindingName) -> SubscribableChannel:
        """Return the channel of a binding, or an error channel, by name."""
        return self.channels[name_of(name)]

    def bound(self, interface: type[I]) -> I:
        """Return an instance of a binding interface; its attributes are the channels."""
        return bound_interface(interface, self.channels)

    def binding(self, name: BindingName) -> "Binding":
        """Return a binding by name, to start, stop, pause or resume that binding alone.

        Args:
            name: The binding's name, or its declaration such as ``Sink.input``.

        Raises:
            ApplicationError: The application is not running, or has no binding of this name.
        """
        service = self._required_runtime().service
        found = service.find(name_of(name))
        if found is None:
            known = ", ".join(sorted(service.bindings)) or "none"
            raise ApplicationError(f"there is no binding {name_of(name)!r}; there are: {known}")
        return found

    def pollable_source(self, name: BindingName) -> PollableMessageSource:
        """Return a source from which the application polls the messages of a binding.

        Called before the application starts, this also declares `name` as a polled binding, unless a setting declares
        it.

        Args:
            name: The binding's name, or the name that `pollable-source` gives it.
        """
        if self._runtime is None:
            self._registrations.declare(self, PolledInput(name_of(name)))
        return PollableMessageSource(name_of(name), lambda wanted: self._required_runtime().polled(wanted))

    @property
    def bindings(self) -> "Mapping[str, Binding]":
        """The bindings by name.

        Raises:
            ApplicationError: The application is not running.
        """
        return self._required_runtime().service.bindings

    @property
    def controller(self) -> "BindingsController":
        """The controller that lists bindings, changes their states and creates new ones; usable while the app runs."""
        from streamkit.management.bindings_controller import BindingsController

        return BindingsController(self._required_runtime)

    @property
    def management_url(self) -> str | None:
        """The URL of the management endpoints, or None if they are not served.

        Raises:
            ApplicationError: The application is not running.
        """
        return self._required_runtime().management_url

    async def health(self) -> "HealthComponent":
        """Return the health of the binders, checked now, and of the bindings.

        Raises:
            ApplicationError: The application is not running.
        """
        return await self._required_runtime().health()

    async def lags(self) -> "Mapping[str, int]":
        """Return the number of unsettled messages by input binding, read now from the binders that report a lag.

        Raises:
            ApplicationError: The application is not running.
        """
        return await self._required_runtime().lags()

    @property
    def is_running(self) -> bool:
        """Whether the application has been started and is not being stopped."""
        return self._runtime is not None and self._stopping is None

    @property
    def portal(self) -> Portal:
        """The portal for other threads to run coroutines on the application's loop: ``app.portal.run(coroutine)``.

        Raises:
            ApplicationError: The application is not running.
        """
        return self._required_runtime().portal

    def _required_runtime(self) -> "Runtime":
        if self._runtime is None:
            raise ApplicationError(
                "the application does not run: start it with `async with app`, `with app` or app.run()"
            )
        if self._runtime.is_forked:
            from streamkit.running.loop_watch import refuse_after_fork

            refuse_after_fork()
        return self._runtime

    # Starting and stopping

    async def start(
        self, *, portal: Portal | None = None, watch_loop: bool = True, serve_management: bool = True
    ) -> None:
        """Start the application on the running loop.

        While :meth:`test` runs the application, this and the next :meth:`stop` do nothing, so that code which starts
        the application, such as the lifespan of a web application, can be tested.

        Args:
            portal: The way of a test to run coroutines on this loop for other threads.
            watch_loop: Whether to warn when a call blocks the loop.
            serve_management: Whether to serve the management endpoints on `management.server.port`.

        Raises:
            ApplicationError: The application is already running, or is still stopping.
            ConfigurationError: Settings or listeners are invalid; several errors are raised as one ConfigurationErrors.
            BinderError: A messaging system refused a binding, or is unavailable and the settings do not allow waiting
                for it.
        """
        if self._runtime is not None:
            self._required_runtime()
            if self._starts_in_test is not None and portal is None and self._stopping is None:
                self._starts_in_test += 1
                return
            state = "runs already" if self._stopping is None else "is still stopping"
            hint = "" if portal is None else ": enter app.test() before the code that starts the application"
            raise ApplicationError(f"the application {state}{hint}")
        from streamkit.running.runtime import Runtime

        self._starts_in_test = None if portal is None else 0
        self._runtime = Runtime(
            self,
            self._registrations,
            container=self.container,
            portal=portal or LoopPortal(asyncio.get_running_loop()),
            watch_loop=watch_loop,
            serve_management=serve_management,
        )
        try:
            await self._runtime.start()
        except BaseException:
            await self._stop_quietly()
            raise

    async def stop(self, timeout: float | None = None) -> None:
        """Stop receiving, wait for the calls in flight, then stop sending and disconnect.

        Calls in flight may still send. A second call waits for the first. If the application is not running, nothing
        happens.

        Args:
            timeout: Seconds to wait for calls in flight; `spring.lifecycle.timeout-per-shutdown-phase` if not given.
        """
        if self._runtime is None:
            return
        if self._starts_in_test:
            self._starts_in_test -= 1
            return
        runtime = self._required_runtime()
        if self._stopping is None:
            stopping = self._stop(runtime, timeout)
            self._stopping = asyncio.get_running_loop().create_task(stopping, name="stop the application")
        # If the caller of stop() is cancelled, the stop itself still runs to its end.
        await asyncio.shield(self._stopping)

    async def _stop(self, runtime: "Runtime", timeout: float | None) -> None:
        try:
            await runtime.stop(timeout)
        finally:
            self._runtime = self._stopping = None

    async def _stop_quietly(self) -> None:
        """Stop after a failed or cancelled start, once the calls in flight are finished; log an error of the stop."""
        try:
            await self.stop()
        except Exception:  # the caller must see the error of the start
            logger.exception("Stopping after a failed start failed")

    def run(self, args: Sequence[str] | None = None) -> None:
        """Start, run until SIGINT, SIGTERM or :meth:`request_stop`, then stop.

        Calls in flight get the shutdown timeout; a second signal ends the process at once.

        Args:
            args: Settings as command-line arguments (`--key=value`). Without them those of the constructor apply, and
                without either those of the process.

        Raises:
            ApplicationError: This thread already runs an event loop.
            SystemExit: Starting or stopping failed. The process ends with exit code 1 and a message for people; the
                cause is the error that :meth:`start` raises.
        """
        if self._runtime is not None and self._starts_in_test is not None:
            raise ApplicationError("a test runs the application: app.run() would wait for a signal, and not return")
        if running_loop() is not None:
            raise ApplicationError("app.run() makes a loop of its own: on a loop that runs, use `async with app`")
        if args is not None or self._args is None:
            self.take_arguments(sys.argv[1:] if args is None else args)
        try:
            run_until_signal(self._start_to_run, self.stop, self._on_stop_request)
        except StreamkitError as error:
            logger.debug("The application ends with an error", exc_info=error)
            raise SystemExit(f"Error: {error}") from error

    async def _start_to_run(self) -> None:
        await self.start()
        if not self.bindings:
            logger.warning(
                "There is nothing to do: the application has neither listeners nor functions nor other bindings. Those "
                "of a module are found when it is given to StreamApplication(...) or app.include()"
            )

    def take_arguments(self, args: Sequence[str]) -> None:
        """Discard the loaded settings, so that they are loaded again with these arguments (`--key=value`)."""
        self._args = args
        given = self._given_environment
        self._environment = None if given is None else given.with_arguments(args)
        if self._container is not None:
            self._container.settings.reset()

    def request_stop(self) -> None:
        """Make :meth:`run` stop the application and return; callable from any thread."""
        if self._stop_requested is not None:
            self._stop_requested()

    def _on_stop_request(self, stop: Callable[[], None] | None) -> None:
        self._stop_requested = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        background = BackgroundLoop(self.start, self.stop)
        background.start()
        self._background = (
            background  # only now: if start() refuses a second start, the loop of the first must stay known
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.stop()

    def test(
        self,
        *,
        strict: bool = False,
        properties: "Mapping[str, Scalar] | None" = None,
        provide: Mapping[str, object] | None = None,
        chaos: str | None = None,
        start: "datetime | None" = None,
    ) -> "Harness[Self]":
        """Return a context manager that runs the application in memory and on virtual time, for tests.

        In a test that is a coroutine write ``async with``: the application runs on the test's own loop, whose time is
        virtual until the end of the block.

        Args:
            strict: Whether a message that is still unread at the end is an error.
            properties: Settings that take precedence over all others during the test.
            provide: Objects by provider name. During the test each replaces the object of that provider, looked up in
                the user's container first, then in :attr:`container`.
            chaos: Faults that happen to sends and acceptances, such as
                ``seed=7,duplicate=1%,reorder=2%,drop-connection=0.5%,delay=20ms``. The same seed repeats the same
                faults. Without a seed one is chosen, and a failure of the test shows it.
            start: The time at which the test begins, with a time zone; 14 November 2023, 22:13:20 UTC if not given.

        Raises:
            ValueError: `chaos` names an unknown fault, a value of it is wrong, or `start` has no time zone.
        """
        from streamkit.testing.harness import Harness

        return Harness(self, strict=strict, properties=properties, provide=provide, chaos=chaos, start=start)

    def __repr__(self) -> str:
        return f"<StreamApplication {'running' if self.is_running else 'stopped'}>"
