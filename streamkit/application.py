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

from streamkit.assembly.registering import Registering
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

if TYPE_CHECKING:  # slow to import, and needed only when the application starts
    from dependency_injector.containers import Container

    from streamkit.binder.binding import Binding
    from streamkit.clock import Clock
    from streamkit.config.environment import Environment
    from streamkit.config.origin import Scalar
    from streamkit.container import ApplicationContainer
    from streamkit.management.bindings_controller import BindingsController
    from streamkit.management.health import HealthComponent
    from streamkit.running.runtime import Runtime
    from streamkit.testing.harness import Harness

__all__ = ["StreamApplication"]

logger = logging.getLogger(__name__)

I = TypeVar("I")  # noqa: E741  # a binding interface


class StreamApplication(Registering):
    """Listeners and bindings of one application.

    ``app.run()`` runs it until a signal, ``async with app`` on the running loop, ``with app`` on a loop of its own;
    ``app.test()`` runs it on memory and virtual time.

    Attributes:
        bridge: Sends to output bindings by name.
        channels: The channels by name; one that is new is made.
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
        binder_plugins: Mapping[str, object] | None = None,
    ) -> None:
        """Make an application; nothing is read or connected yet.

        Args:
            sources: Modules, classes and objects whose decorated functions are listeners. A class is made when
                the application starts, its constructor given what it asks for by annotation.
            config_location: Settings files or directories, in place of those in the current directory.
            properties: Settings that win over everything.
            args: Settings as command-line arguments (`--key=value`); :meth:`run` takes those of the process.
            environment: All settings, read already: then nothing else is read; arguments of :meth:`run` win over
                them.
            container: A dependency-injector container for `Provide[...]` markers.
            converters: Message converters, tried before the provided ones.
            binder_plugins: Binder types beside the installed ones: objects with the hooks of
                :mod:`streamkit.binder.plugin`, by type.
        """
        super().__init__(sources, container)
        self.bridge = StreamBridge(self._required_runtime)
        self._config_location = config_location
        self._properties = properties
        self._args = args
        self._own_container = container
        self._converters = tuple(converters)
        self._binder_plugins = dict(binder_plugins or {})
        self._given_environment = environment
        self._environment = environment
        self._container: ApplicationContainer | None = None
        self._channels: Channels | None = None
        self._runtime: Runtime | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._background: BackgroundLoop | None = None
        self._stop_requested: Callable[[], None] | None = None

    # Parts

    @property
    def environment(self) -> "Environment":
        """All settings, each with its origin; read when first asked for."""
        if self._environment is None:
            from streamkit.config.environment import Environment

            self._environment = Environment.load(
                config_location=self._config_location,
                arguments=self._args or (),
                overrides=self._properties,
            )
        return self._environment

    @property
    def container(self) -> "ApplicationContainer":
        """The application's parts; override them before the application starts."""
        if self._container is None:
            from dependency_injector import providers

            from streamkit.container import ApplicationContainer

            self._container = ApplicationContainer(
                application=providers.Object(self),
                application_name=providers.Callable(lambda: self.name),
                environment=providers.Callable(lambda: self.environment),
                binder_plugins=providers.Object(self._binder_plugins),
                converters=providers.Object(self._converters),
                named_objects=providers.Object(self._named),
                retry_policy=providers.Callable(lambda: self._retry_policy),
                customizers=providers.Callable(lambda: self._registrations.customizers),
            )
        return self._container

    @property
    def containers(self) -> "tuple[Container, ...]":
        """Where names and markers are looked up: the user's own container, if there is one, then the application's."""
        return (self.container,) if self._own_container is None else (self._own_container, self.container)

    @property
    def name(self) -> str:
        """`spring.application.name`, or `application`."""
        return self.environment.text("spring.application.name") or "application"

    @property
    def clock(self) -> "Clock":
        """What stamps messages."""
        clock: Clock = self.container.clock()
        return clock

    @property
    def channels(self) -> Channels:
        """The channels by name; one that is new is made."""
        if self._channels is None:
            self._channels = Channels(self.container.error_channels())
        return self._channels

    def channel(self, name: BindingName) -> SubscribableChannel:
        """Return the channel of a binding, or an error channel, by its name."""
        return self.channels[name_of(name)]

    def bound(self, interface: type[I]) -> I:
        """Return an instance of a binding interface, whose attributes are the channels."""
        return bound_interface(interface, self.channels)

    def binding(self, name: BindingName) -> "Binding":
        """Return a binding, to start, stop or pause it by itself.

        Raises:
            ApplicationError: The application does not run, or has no such binding.
        """
        service = self._required_runtime().service
        found = service.find(name_of(name))
        if found is None:
            known = ", ".join(sorted(service.bindings)) or "none"
            raise ApplicationError(f"there is no binding {name_of(name)!r}; there are: {known}")
        return found

    def pollable_source(self, name: BindingName) -> PollableMessageSource:
        """Return what polls a binding: the one of that name, or the one that `pollable-source` calls so.

        Before the application starts, a name that no setting lists becomes a polled binding.
        """
        if self._runtime is None:
            self._registrations.polled.append(name_of(name))
        return PollableMessageSource(name_of(name), lambda wanted: self._required_runtime().polled(wanted))

    @property
    def bindings(self) -> "Mapping[str, Binding]":
        """The bindings by name, while the application runs."""
        return self._required_runtime().service.bindings

    @property
    def controller(self) -> "BindingsController":
        """What tells and changes the states of the bindings, and makes new ones, while the application runs."""
        from streamkit.management.bindings_controller import BindingsController

        return BindingsController(self._required_runtime)

    @property
    def management_url(self) -> str | None:
        """Where the management endpoints are served, or None."""
        return self._required_runtime().management_url

    async def health(self) -> "HealthComponent":
        """Return whether the application can do its work: the health of its binders, asked now, and its bindings."""
        return await self._required_runtime().health()

    async def lags(self) -> "Mapping[str, int]":
        """Return how many messages the inputs have not settled yet, by binding, of binders that tell: asked now."""
        return await self._required_runtime().lags()

    @property
    def is_running(self) -> bool:
        """Whether the application is started, and nobody stops it."""
        return self._runtime is not None and self._stopping is None

    @property
    def portal(self) -> Portal:
        """The way onto the application's loop, for other threads: ``app.portal.run(coroutine)``."""
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

    # Life

    async def start(
        self, *, portal: Portal | None = None, watch_loop: bool = True, serve_management: bool = True
    ) -> None:
        """Start on the running loop.

        Args:
            portal: How other threads reach this loop, if not in the usual way.
            watch_loop: Whether to warn when something blocks the loop.
            serve_management: Whether to serve the management endpoints where `management.server.port` says.

        Raises:
            ConfigurationErrors: Settings or listeners are wrong; all of them are told.
            BinderError: A messaging system refused, or is away and is not to be waited for.
        """
        if self._runtime is not None:
            self._required_runtime()
            state = "runs already" if self._stopping is None else "is still stopping"
            raise ApplicationError(f"the application {state}")
        from streamkit.running.runtime import Runtime

        self._runtime = Runtime(
            self,
            self._registrations,
            container=self.container,
            own=() if self._own_container is None else (self._own_container,),
            channels=self.channels,
            bridge=self.bridge,
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
        """Stop receiving, finish calls in flight, which may send as before, stop sending, disconnect.

        A second call waits for the first.

        Args:
            timeout: Seconds for calls in flight; `spring.lifecycle.timeout-per-shutdown-phase` if not given.
        """
        if self._runtime is None:
            return
        runtime = self._required_runtime()
        if self._stopping is None:
            stopping = self._stop(runtime, timeout)
            self._stopping = asyncio.get_running_loop().create_task(stopping, name="stop the application")
        # Who gives up waiting does not leave the application half stopped.
        await asyncio.shield(self._stopping)

    async def _stop(self, runtime: "Runtime", timeout: float | None) -> None:
        try:
            await runtime.stop(timeout)
        finally:
            self._runtime = self._stopping = None

    async def _stop_quietly(self) -> None:
        """Close what a start that failed or was cancelled had opened, once calls that had begun are finished."""
        try:
            await self.stop()
        except Exception:  # the start's own error is the one to see
            logger.exception("Stopping after a failed start failed")

    def run(self, args: Sequence[str] | None = None) -> None:
        """Start, run until SIGINT, SIGTERM or :meth:`request_stop`, and stop.

        Calls in flight get the shutdown timeout; a second signal ends the process at once.

        Args:
            args: Settings as command-line arguments; those of the process, if neither these nor the constructor's
                are given.

        Raises:
            ApplicationError: This thread runs a loop already.
            SystemExit: The application cannot start, or not stop, as it should: a report for people, with exit
                code 1. The error, which :meth:`start` raises to programs, is its cause.
        """
        if running_loop() is not None:
            raise ApplicationError(
                "app.run() makes a loop of its own: on a loop that runs, use `async with app`"
            )
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
        """Have the settings read anew, with these arguments (`--key=value`)."""
        self._args = args
        given = self._given_environment
        self._environment = None if given is None else given.with_arguments(args)
        if self._container is not None:
            self._container.settings.reset()

    def request_stop(self) -> None:
        """Have :meth:`run` return, once calls in flight are finished; from any thread."""
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
            background  # not before: a second start, which is refused, must not put the first one's away
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
    ) -> "Harness[Self]":
        """Return a context in which the application runs on memory and virtual time, for tests.

        Args:
            strict: Whether a message nobody has read at the end is an error.
            properties: Settings that win over everything while the test runs.
            provide: What the containers' providers of these names give while it runs: the user's container's first,
                then those of :attr:`container`.
        """
        from streamkit.testing.harness import Harness

        return Harness(self, strict=strict, properties=properties, provide=provide)

    def __repr__(self) -> str:
        return f"<StreamApplication {'running' if self.is_running else 'stopped'}>"
