"""The application's container: its parts, each of which can be overridden.

::

    app.container.clock.override(providers.Object(my_clock))

A container of the user's own can be given to the application; markers such as ``Provide[Repositories.orders]``
in listeners and constructors are looked up there first.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dependency_injector import containers, providers

from streamkit.binder.binding_service import BindingService
from streamkit.binder.customizers import Customizers
from streamkit.binder.error_channels import ErrorChannels
from streamkit.binder.factory import BindingFactory
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.registry import BinderRegistry, BinderTypes
from streamkit.clock import SystemClock
from streamkit.config.environment import Environment
from streamkit.config.settings import StreamSettings
from streamkit.messaging.converter import CompositeMessageConverter

if TYPE_CHECKING:  # the wiring module is slow to import, and without it there are no markers
    from dependency_injector.wiring import ProvidersMap

__all__ = ["ApplicationContainer", "Providers"]


class ApplicationContainer(containers.DeclarativeContainer):
    """What an application is made of."""

    application: "providers.Dependency[object]" = providers.Dependency()
    """The application itself."""
    application_name = providers.Dependency(instance_of=str)
    """Its name, for client ids and logs."""
    environment = providers.Dependency(instance_of=Environment)
    """All settings."""
    binder_plugins = providers.Dependency(instance_of=dict, default={})
    """Binder types given in code."""
    converters = providers.Dependency(instance_of=tuple, default=())
    """The user's message converters, tried first."""
    named_objects = providers.Dependency(instance_of=NamedObjects, default=NamedObjects())
    """What settings may name."""
    retry_policy: "providers.Dependency[object]" = providers.Dependency(default=None)
    """How bindings that name no retry policy retry, in place of their settings."""
    customizers = providers.Dependency(instance_of=Customizers, default=Customizers())
    """What is done to binders and to what they make."""

    clock = providers.Singleton(SystemClock)
    """Wall-clock time."""
    converter = providers.Singleton(CompositeMessageConverter, converters)
    """All message converters."""
    error_channels = providers.Singleton(ErrorChannels)
    """Where failures are told."""
    binder_types = providers.Singleton(BinderTypes, binder_plugins)
    """The kinds of binders there are."""
    settings = providers.Singleton(
        StreamSettings.explain,
        environment,
        binder_types.provided.names,
        binder_types.provided.extended_models,
    )
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
    )
    """Makes bindings."""
    bindings = providers.Singleton(
        BindingService, application, settings.provided.value, binders, binding_factory
    )
    """The bindings of this run."""


class Providers:
    """Finds what a container's marker stands for."""

    def __init__(self, own: Sequence[containers.Container]) -> None:
        """Look in these containers, the first one first."""
        self._containers = tuple(own)

    def find(self, marker: object) -> Callable[[], object] | None:
        """Return what provides the value, or None if ``marker`` is none of dependency-injector's.

        Raises:
            LookupError: No container has it.
        """
        wiring = sys.modules.get("dependency_injector.wiring")
        if wiring is None or not isinstance(marker, wiring.Provide | wiring.Provider):
            return None
        mark: Any = marker
        for container in self._containers:
            known: ProvidersMap = wiring.ProvidersMap(container)
            provider: Any = known.resolve_provider(mark.provider, mark.modifier)
            if provider is not None:
                return partial(_itself, provider) if isinstance(marker, wiring.Provider) else provider
        raise LookupError(f"no container provides {mark.provider!r}")


def _itself(provider: object) -> object:
    return provider
