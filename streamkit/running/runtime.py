"""One run of an application: started on a loop, stopped in the reverse order."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from types import ModuleType
from typing import TYPE_CHECKING, cast

from dependency_injector import containers

from streamkit.assembly.assembly import Assembly
from streamkit.assembly.registrations import Registrations
from streamkit.binder.binding import InputBinding, OutputBinding
from streamkit.binder.binding_service import BindingService
from streamkit.binder.channels import Channels
from streamkit.bridge import StreamBridge
from streamkit.clock import use_clock
from streamkit.config.application_properties import (
    LIFECYCLE,
    MANAGEMENT_SERVER,
    LifecycleProperties,
    ManagementServerProperties,
)
from streamkit.config.places import located
from streamkit.container import ApplicationContainer, Providers
from streamkit.errors import ApplicationError, ConfigurationError
from streamkit.events import application_started, application_stopped, notify
from streamkit.functions.settings import FunctionSettings
from streamkit.listeners.binding_interfaces import declares_channels, enabled_bindings
from streamkit.listeners.listener import decorated_in, has_listeners, transaction_group_of
from streamkit.listeners.parts import Parts
from streamkit.listeners.polled_binding import PolledBinding
from streamkit.management.health import HealthComponent, application_health
from streamkit.management.lags import Lags
from streamkit.messaging.channel import DirectChannel, SubscribableChannel
from streamkit.messaging.interceptor import ChannelInterceptor
from streamkit.messaging.portal import Portal
from streamkit.running.loop_watch import ForkedPortal, ForkGuard, LoopWatch, after_fork, refuse_after_fork

if TYPE_CHECKING:  # starlette and uvicorn are needed only where there is a port to serve at
    from streamkit.management.endpoints import ManagedApplication
    from streamkit.management.server import ManagementServer

__all__ = ["Runtime"]

logger = logging.getLogger(__name__)


class Runtime:
    """A running application.

    Attributes:
        portal: The way onto its loop.
        is_forked: Whether this process was forked from the one it runs in.
        service: Its bindings.
    """

    def __init__(
        self,
        application: object,
        registrations: Registrations,
        *,
        container: ApplicationContainer,
        own: Sequence[containers.Container],
        channels: Channels,
        bridge: StreamBridge,
        portal: Portal,
        watch_loop: bool,
        serve_management: bool,
    ) -> None:
        self.portal = portal
        self.is_forked = False
        self._application = application
        self._registrations = registrations
        self._container = container
        self._own = own
        self._channels = channels
        self._bridge = bridge
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
        """Assemble, connect, bind.

        Raises:
            ConfigurationErrors: Settings or listeners are wrong.
            BinderError: A messaging system refused, or is away and is not to be waited for.
            ApplicationError: It was stopped meanwhile.
        """
        loop = asyncio.get_running_loop()
        with use_clock(self._container.clock()):
            context = copy_context()
        self._starting = loop.create_task(self._start(), name="start the application", context=context)
        try:
            await self._starting
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise ApplicationError("the application was stopped while it was starting") from None

    async def _start(self) -> None:
        assembly = self._assemble()
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
        logger.info("Started with bindings %s", dict(self.service.states()))
        if application_started.receivers:
            notify(application_started, self._application)

    def _assemble(self) -> Assembly:
        container = self._container
        parts = Parts(
            self._application,
            container.settings().value,
            self.service,
            self._channels,
            container.error_channels(),
            container.converter(),
            Providers([*self._own, container]),
            self._bridge,
            container.clock(),
        )
        functions = FunctionSettings.load(container.environment(), container.settings())
        self._assembly = assembly = Assembly(
            parts,
            functions,
            routing_callback=self._registrations.routing_callback,
            polled=self._registrations.polled,
        )
        for interface in self._registrations.interfaces:
            assembly.interface(interface)
        for function, listener in self._registrations.listeners:
            assembly.listener(function, listener)
        for function, channel in self._registrations.error_listeners:
            assembly.error_listener(function, channel)
        for target, group in self._registrations.transaction_listeners:
            assembly.transaction_listener(target, group)
        for function, declaration in self._registrations.functions:
            assembly.named_function(function, declaration)
        for feeder in self._registrations.feeders:
            assembly.feeder(feeder)
        for source in self._registrations.sources:
            self._include(assembly, source)
        assembly.finish()
        return assembly

    def _include(self, assembly: Assembly, source: object) -> None:
        """Take in a module with its classes, a binding interface, a class of listeners, or an object of one."""
        if isinstance(source, ModuleType):
            own = [
                v for v in vars(source).values() if isinstance(v, type) and v.__module__ == source.__name__
            ]
            for value in filter(_is_of_interest, own):
                self._include(assembly, value)
        elif isinstance(source, type):
            if declares_channels(source):
                assembly.interface(source)
                if not has_listeners(source):
                    return
            source = self._prepared(assembly, source)
        else:
            for interface in enabled_bindings(type(source)):
                assembly.interface(interface)
        group = None if isinstance(source, ModuleType) else transaction_group_of(type(source))
        if group is not None:
            assembly.transaction_listener(source, group)
        functions = list(decorated_in(source))
        if not functions and group is None and not _has_bindings(source):
            assembly.fail(f"{source!r} has neither listeners nor binding interfaces: what is it for?")
        for function in functions:
            assembly.function(function)

    @staticmethod
    def _prepared(assembly: Assembly, kind: type) -> object:
        """Return an instance of a class of listeners, its interfaces bound."""
        for interface in enabled_bindings(kind):
            assembly.interface(interface)
        return assembly.construct(kind)

    def _intercept(self, channel: SubscribableChannel) -> None:
        for interceptor in self._registrations.interceptors.matching(channel.name):
            channel.add_interceptor(interceptor)
            self._intercepted.append((channel, interceptor))

    async def _start_management(self) -> "ManagementServer | None":
        """Serve the management endpoints, if the settings say where.

        Raises:
            ConfigurationError: Their address cannot be had, or what serves them is not installed.
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
                "it needs starlette and uvicorn: pip install 'streamkit[management]'"
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
        """Where the management endpoints are, if they are served."""
        return None if self._management is None else self._management.url

    async def health(self) -> HealthComponent:
        """Return the health of the binders in use and of the bindings."""
        return await application_health(
            self._container.binders().made.values(), self.service.bindings.values()
        )

    async def lags(self) -> Mapping[str, int]:
        """Return how many messages the inputs have not settled yet, of binders that tell."""
        return await self._lags.ask(self._container.binders().made.values())

    def polled(self, name: str) -> PolledBinding:
        """Return the polled binding of that name.

        Raises:
            ApplicationError: There is none.
        """
        found = None if self._assembly is None else self._assembly.polled(name)
        if found is None:
            raise ApplicationError(
                f"there is no polled consumer {name!r}: set spring.cloud.stream.pollable-source={name}, or call "
                "app.pollable_source before the application starts"
            )
        return found

    async def output(self, name: str, binder: str | None) -> OutputBinding:
        """Return the output binding of that name, made if it is new.

        Raises:
            UseAfterFork: This process was forked from the one the application runs in.
        """
        if isinstance(self.portal, ForkedPortal):
            refuse_after_fork()
        return await self.service.output(name, binder, self._channel_of_its_own)

    async def define_input(self, name: str, listeners: Sequence[Callable[..., object]]) -> InputBinding:
        """Return a new input binding, bound if it starts by itself.

        Raises:
            ConfigurationError: Its settings or listeners are wrong.
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
        """Return a new output binding, bound if it starts by itself.

        Raises:
            ConfigurationError: Its settings are wrong.
        """
        binding = self.service.factory.output(name, self._channels[name])
        self._intercept(binding.channel)
        await self.service.launch(binding)
        return binding

    def _channel_of_its_own(self, name: str) -> SubscribableChannel:
        """Make the channel of a binding made by name.

        Not one of the application's: those are shared by names that differ only in case or dashes, which are
        different destinations, and by all binders.
        """
        channel = DirectChannel(name, portal=self.portal)
        for interceptor in self._registrations.interceptors.matching(name):
            channel.add_interceptor(interceptor)
        return channel

    async def stop(self, timeout: float | None = None) -> None:
        """Unbind, take the listeners off their channels, close what was opened.

        Args:
            timeout: Seconds for calls in flight; those of the settings if not given.

        Raises:
            Exception: What a binder raised; everything is stopped all the same.
        """
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._watch is not None:
            self._watch.stop()
        if timeout is None:
            timeout = self._lifecycle.timeout_per_shutdown_phase.total_seconds()
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            if self._assembly is not None:
                await self._assembly.wiring.stop_suppliers(timeout)
            await self.service.stop(max(0.0, deadline - asyncio.get_running_loop().time()))
        finally:
            self._fork_hook = None
            for channel, interceptor in self._intercepted:
                channel.remove_interceptor(interceptor)
            if self._assembly is not None:
                await self._assembly.wiring.stop_streams()
                self._assembly.take_apart()
            self._channels.attach(None)
            self._container.bindings.reset()
            self._container.binding_factory.reset()
            self._container.binders.reset()
            management, self._management = self._management, None
            if management is not None:
                await management.stop()
            if application_stopped.receivers:
                notify(application_stopped, self._application)

    def _forked(self) -> None:
        """In the child of a fork: refuse whatever is sent."""
        self.is_forked = True
        self.portal = ForkedPortal(self.portal.loop)
        self._channels.attach(self.portal)
        for name in self._channels:
            self._channels[name].add_interceptor(ForkGuard(), 0)


def _has_bindings(source: object) -> bool:
    if isinstance(source, ModuleType):
        return any(_is_of_interest(value) for value in vars(source).values() if isinstance(value, type))
    return bool(enabled_bindings(type(source)))


def _is_of_interest(kind: type) -> bool:
    return (
        has_listeners(kind)
        or bool(enabled_bindings(kind))
        or declares_channels(kind)
        or transaction_group_of(kind) is not None
    )
