"""One run of an application: started on a loop, and stopped in reverse order."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, cast

from streamkit.assembly.assembly import Assembly
from streamkit.assembly.registrations import Registrations
from streamkit.binder.binding import InputBinding, OutputBinding
from streamkit.binder.binding_service import BindingService
from streamkit.binder.channels import Channels
from streamkit.clock import use_clock
from streamkit.config.application_properties import LIFECYCLE, MANAGEMENT_SERVER, LifecycleProperties
from streamkit.config.located_errors import located
from streamkit.config.management_properties import ManagementServerProperties
from streamkit.container import ApplicationContainer, forget_run
from streamkit.errors import ApplicationError, ConfigurationError
from streamkit.events import application_started, application_stopped, notify
from streamkit.listeners.polled_binding import PolledBinding
from streamkit.management.health import HealthComponent, application_health
from streamkit.management.lags import Lags
from streamkit.messaging.channel import DirectChannel, SubscribableChannel
from streamkit.messaging.interceptor import ChannelInterceptor
from streamkit.messaging.portal import Portal
from streamkit.running.loop_watch import ForkedPortal, ForkGuard, LoopWatch, after_fork, refuse_after_fork
from streamkit.running.start_messages import bindings_text, settings_text, start_fields

if TYPE_CHECKING:  # starlette and uvicorn are needed only if management endpoints are served
    from streamkit.management.endpoint import ManagedApplication
    from streamkit.management.server import ManagementServer

__all__ = ["Runtime"]

logger = logging.getLogger(__name__)


class Runtime:
    """One run of an application.

    Attributes:
        portal: Runs coroutines on the application's loop for other threads.
        is_forked: Whether this process was forked from the one in which the application runs.
        service: The application's bindings.
    """

    def __init__(
        self,
        application: object,
        registrations: Registrations,
        *,
        container: ApplicationContainer,
        portal: Portal,
        watch_loop: bool,
        serve_management: bool,
    ) -> None:
        self.portal = portal
        self.is_forked = False
        self._application = application
        self._registrations = registrations
        self._container = container
        self._channels: Channels = container.channels()
        self._watch = LoopWatch(application) if watch_loop else None
        self._intercepted: list[tuple[SubscribableChannel, ChannelInterceptor]] = []
        self._serves_management = serve_management
        self._management: ManagementServer | None = None
        self._lags = Lags()
        self._assembly: Assembly | None = None
        self._fork_hook: object = None
        self._starting: asyncio.Task[None] | None = None
        self._lifecycle = container.environment().bind(LIFECYCLE, LifecycleProperties)
        self.service: BindingService = container.bindings()
        self.service.on_new_destination = registrations.on_new_destination

    async def start(self) -> None:
        """Assemble the application, start the management endpoints, and bind the bindings.

        Raises:
            ConfigurationError: Settings or listeners are invalid; several errors are raised as one ConfigurationErrors.
            BinderError: A messaging system refused a binding, or is unavailable and the settings do not allow waiting
                for it.
            ApplicationError: The application was stopped during the start.
        """
        # A task of its own, which stop() can cancel; every task that is started from it inherits the clock.
        loop = asyncio.get_running_loop()
        with use_clock(self._container.clock()):
            context = copy_context()
        self._starting = loop.create_task(self._start(), name="start the application", context=context)
        try:
            await self._starting
        except asyncio.CancelledError:
            # Either the caller was cancelled, or stop() cancelled the task.
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise ApplicationError("the application was stopped while it was starting") from None

    async def _start(self) -> None:
        logger.info("%s", settings_text(self._container.environment()))
        self._assembly = assembly = self._container.assembly()
        assembly.assemble()
        self._channels.attach(self.portal)
        for binding in self.service.bindings.values():
            self._intercept(binding.channel)
        self._fork_hook = after_fork(self._forked)
        if self._serves_management:
            self._management = await self._start_management()
        await self.service.start()
        assembly.wiring.start()
        if self._watch is not None:
            self._watch.start()
        self._log_start()
        if application_started.receivers:
            notify(application_started, self._application)

    def _log_start(self) -> None:
        environment, bindings = self._container.environment(), self.service.bindings.values()
        about = self._container.application_name(), environment.active_profiles, bindings
        logger.info("Started: %s", bindings_text(*about), extra=start_fields(*about))

    def _intercept(self, channel: SubscribableChannel) -> None:
        for interceptor in self._registrations.interceptors.matching(channel.name):
            channel.add_interceptor(interceptor)
            self._intercepted.append((channel, interceptor))

    async def _start_management(self) -> "ManagementServer | None":
        """Start the management endpoints, if the settings give a port.

        Raises:
            ConfigurationError: The address cannot be bound, or starlette or uvicorn is not installed.
        """
        environment = self._container.environment()
        properties = environment.bind(MANAGEMENT_SERVER, ManagementServerProperties)
        if properties.port is None or properties.port < 0:
            return None
        port = environment.get(f"{MANAGEMENT_SERVER}.port")
        try:
            from streamkit.management.server import ManagementServer
        except ImportError as error:
            missing = ConfigurationError(
                "it needs starlette and uvicorn: pip install 'streamkit-messaging[management]'"
            )
            raise located(port, missing) from error
        server = ManagementServer(cast("ManagedApplication", self._application), properties)
        try:
            await server.start()
        except ConfigurationError as error:
            raise located(port, error) from error
        return server

    @property
    def management_url(self) -> str | None:
        """The URL of the management endpoints, or None if they are not served."""
        return None if self._management is None else self._management.url

    async def health(self) -> HealthComponent:
        """Return the health of the binders in use and of the bindings."""
        return await application_health(self._container.binders().made.values(), self.service.bindings.values())

    async def lags(self) -> Mapping[str, int]:
        """Return the number of unsettled messages by input binding, of the binders that report a lag."""
        return await self._lags.ask(self._container.binders().made.values())

    def polled(self, name: str) -> PolledBinding:
        """Return the polled binding of this name.

        Raises:
            ApplicationError: There is no such polled binding.
        """
        found = None if self._assembly is None else self._assembly.polled(name)
        if found is None:
            raise ApplicationError(
                f"there is no polled consumer {name!r}: set spring.cloud.stream.pollable-source={name}, or call "
                "app.pollable_source before the application starts"
            )
        return found

    async def output(self, name: str, binder: str | None) -> OutputBinding:
        """Return the output binding of this name; create it if it does not exist.

        Raises:
            UseAfterFork: This process was forked from the one in which the application runs.
        """
        if isinstance(self.portal, ForkedPortal):
            refuse_after_fork()
        return await self.service.output(name, binder, self._new_channel)

    async def define_input(self, name: str, listeners: Sequence[Callable[..., object]]) -> InputBinding:
        """Create an input binding and return it, bound unless its settings disable automatic startup.

        Raises:
            ConfigurationError: The settings or listeners are invalid.
            ApplicationError: The application is stopping.
        """
        assert self._assembly is not None, "it is there while the application runs"
        self._assembly.late_input(name, listeners)
        binding = self.service.inputs[-1]
        self._intercept(binding.channel)
        try:
            await self.service.launch(binding)
        except BaseException:
            self._assembly.drop_input(name)
            raise
        return binding

    async def define_output(self, name: str) -> OutputBinding:
        """Create an output binding and return it, bound unless its settings disable automatic startup.

        Raises:
            ConfigurationError: The settings are invalid.
            ApplicationError: The application is stopping.
        """
        binding = self.service.factory.output(name, self._channels[name])
        self._intercept(binding.channel)
        await self.service.launch(binding)
        return binding

    def _new_channel(self, name: str) -> SubscribableChannel:
        """Create the channel of an output binding that is created by sending to a new name.

        The application's channels do not fit: names that differ only in case or dashes share a channel there, as do
        all binders, but such names are different destinations.
        """
        channel = DirectChannel(name, portal=self.portal)
        for interceptor in self._registrations.interceptors.matching(name):
            channel.add_interceptor(interceptor)
        return channel

    async def stop(self, timeout: float | None = None) -> None:
        """Stop suppliers, unbind, unsubscribe the listeners, and close the management endpoints.

        A start in progress is cancelled first. Every step is done even if a binder raises.

        Args:
            timeout: Seconds for calls in flight; `spring.lifecycle.timeout-per-shutdown-phase` if None.

        Raises:
            Exception: The exception of a binder.
        """
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._watch is not None:
            self._watch.stop()
        if timeout is None:
            timeout = self._lifecycle.timeout_per_shutdown_phase.total_seconds()
        deadline = asyncio.get_running_loop().time() + timeout
        # Suppliers send messages, so they stop before the outputs are unbound. Functions over streams work on messages
        # in flight until the inputs are unbound, so they stop last. All steps share one deadline.
        try:
            if self._assembly is not None:
                await self._assembly.wiring.stop_suppliers(timeout)
            await self.service.stop(max(0.0, deadline - asyncio.get_running_loop().time()))
        finally:
            # `after_fork` holds the hook weakly: from here on, a fork does not concern this run.
            self._fork_hook = None
            for channel, interceptor in self._intercepted:
                channel.remove_interceptor(interceptor)
            if self._assembly is not None:
                await self._assembly.wiring.stop_streams()
                self._assembly.disassemble()
            self._channels.attach(None)
            forget_run(self._container)
            management, self._management = self._management, None
            if management is not None:
                await management.stop()
            if application_stopped.receivers:
                notify(application_stopped, self._application)

    def _forked(self) -> None:
        """In the child of a fork, make every call and every send raise UseAfterFork."""
        self.is_forked = True
        self.portal = ForkedPortal(self.portal.loop)
        self._channels.attach(self.portal)
        for name in self._channels:
            # The first interceptor, so that no other one works on a message that is refused.
            self._channels[name].add_interceptor(ForkGuard(), 0)
