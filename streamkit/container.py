"""The application's container: the parts of an application, each of which can be overridden.

::

    with app.container.clock.override(providers.Object(my_clock)):
        ...

The application can also be given a container of the user's own. Markers such as ``Provide[Repositories.orders]`` in
listeners and constructors are looked up in that container first.
"""

from typing import Final

from dependency_injector import containers, providers

from streamkit.assembly.assembly import Assembly
from streamkit.assembly.registrations import Registrations
from streamkit.binder.binding_service import BindingService
from streamkit.binder.channels import Channels
from streamkit.binder.customizers import Customizers
from streamkit.binder.error_channels import ErrorChannels
from streamkit.binder.factory import BindingFactory
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.registry import BinderRegistry
from streamkit.bridge import StreamBridge
from streamkit.clock import SystemClock
from streamkit.config.environment import Environment
from streamkit.config.judgement import judge_bindings, read_settings
from streamkit.functions.catalog import FunctionCatalog
from streamkit.functions.settings import FunctionSettings
from streamkit.functions.wiring import FunctionWiring
from streamkit.listeners.injection import Injection
from streamkit.listeners.input_settings import InputSettings
from streamkit.listeners.listener_threads import ListenerPools
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.plugins.application_plugins import ApplicationPlugins

__all__ = ["OF_ONE_RUN", "ApplicationContainer", "forget_run"]


class ApplicationContainer(containers.DeclarativeContainer):
    """The parts of an application."""

    application: "providers.Dependency[object]" = providers.Dependency()
    """The application itself."""
    application_name = providers.Dependency(instance_of=str)
    """The application's name, for client ids and logs."""
    environment = providers.Dependency(instance_of=Environment)
    """The settings."""
    given_plugins = providers.Dependency(instance_of=tuple, default=())
    """The plugins given in code."""
    converters = providers.Dependency(instance_of=tuple, default=())
    """The user's message converters, tried before the built-in ones."""
    named_objects = providers.Dependency(instance_of=NamedObjects, default=NamedObjects())
    """The objects that settings refer to by name."""
    retry_policy: "providers.Dependency[object]" = providers.Dependency(default=None)
    """The retry policy of bindings that name none; it replaces their retry settings."""
    customizers = providers.Dependency(instance_of=Customizers, default=Customizers())
    """The functions that customize binders and the objects they create."""
    registrations = providers.Dependency(instance_of=Registrations)
    """The listeners, functions and bindings that were registered with the application."""
    bridge = providers.Dependency(instance_of=StreamBridge)
    """Sends to bindings by name."""
    searched = providers.Dependency(instance_of=tuple)
    """The containers in which markers are looked up, in this order."""

    clock = providers.Singleton(SystemClock)
    """Wall-clock time."""
    plugins = providers.Singleton(ApplicationPlugins, given_plugins)
    """The plugins: those given in code, then the installed ones."""
    converter = providers.Singleton(CompositeMessageConverter, converters, plugins.provided.message_converters.call())
    """The message converters: the user's, then the plugins' and the built-in ones."""
    error_channels = providers.Singleton(ErrorChannels)
    """The error channels, to which failures are sent."""
    channels = providers.Singleton(Channels, error_channels)
    """The channels by name."""
    injection = providers.Singleton(Injection, searched)
    """Resolves markers such as ``Provide[...]``."""
    binder_types = providers.Singleton(plugins.provided.binder_types.call())
    """The available binder types."""
    settings = providers.Singleton(read_settings, environment, binder_types)
    """`spring.cloud.stream.*`, with the origin of each value."""
    binders = providers.Singleton(
        BinderRegistry,
        binder_types,
        environment,
        settings.provided.value,
        clock,
        application_name,
        customizers=customizers,
    )
    """The configured binders."""
    binding_factory = providers.Singleton(
        BindingFactory,
        application,
        settings,
        environment=environment,
        registry=binders,
        converter=converter,
        error_channels=error_channels,
        named=named_objects,
        retry_policy=retry_policy,
        customizers=customizers,
        make_keeper=plugins.provided.message_keeper,
        make_tracer=plugins.provided.message_tracer,
    )
    """Creates bindings."""
    bindings = providers.Singleton(BindingService, application, settings.provided.value, binders, binding_factory)
    """The bindings of this run."""
    listener_threads = providers.Singleton(ListenerPools)
    """The threads on which `def` listeners run."""
    inputs = providers.Singleton(InputSettings, binding_factory.provided.settings, converter)
    """The settings of the inputs of listeners and functions."""
    function_settings = providers.Singleton(FunctionSettings.load, environment, settings)
    """The settings of functions."""
    function_catalog = providers.Singleton(FunctionCatalog, function_settings, injection)
    """The functions that settings may bind."""
    function_wiring = providers.Singleton(
        FunctionWiring,
        function_settings,
        inputs=inputs,
        bindings=bindings,
        channels=channels,
        error_channels=error_channels,
        converter=converter,
        injection=injection,
        threads=listener_threads,
        bridge=bridge,
        clock=clock,
    )
    """Creates the pipeline stages of functions."""
    judge = providers.Callable(judge_bindings, environment, settings, binder_types)
    """Judges the settings of bindings."""
    assembly = providers.Singleton(
        Assembly,
        application,
        registrations,
        function_settings,
        inputs=inputs,
        bindings=bindings,
        channels=channels,
        converter=converter,
        injection=injection,
        threads=listener_threads,
        bridge=bridge,
        catalog=function_catalog,
        wiring=function_wiring,
        judge=judge.provider,
        advise=plugins.provided.listener_advice,
    )
    """Connects listeners and functions to bindings."""


OF_ONE_RUN: Final = (
    "binders",
    "binding_factory",
    "bindings",
    "listener_threads",
    "inputs",
    "function_settings",
    "function_catalog",
    "function_wiring",
    "assembly",
)
"""The providers whose objects live for one run of the application."""


def forget_run(container: ApplicationContainer) -> None:
    """Reset the providers in `OF_ONE_RUN`, so that the next run creates new objects."""
    for name in OF_ONE_RUN:
        provider: providers.Singleton[object] = getattr(container, name)
        provider.reset()
