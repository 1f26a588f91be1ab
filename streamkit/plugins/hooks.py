"""The hooks that plugins implement.

An implementation may leave out arguments of its hook. ``None`` and empty results are ignored. Plugins are called in
their order (:mod:`streamkit.plugins.application_plugins`): the results of an earlier plugin take precedence over those
of a later one. A plugin that must come first or last marks its hook with ``@hookimpl(tryfirst=True)`` or
``trylast=True``.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pluggy

from streamkit.binder.binder_type import BinderType
from streamkit.binder.keeping import KeptOutput, MessageKeeper
from streamkit.binder.tracing import MessageTracer, TracedBinding
from streamkit.config.environment import Environment
from streamkit.config.source import PropertySource
from streamkit.messaging.message_converter import MessageConverter

if TYPE_CHECKING:  # commands that read settings load plugins, and need neither listeners nor endpoints
    from streamkit.listeners.advice import AdvisedListener, ListenerAdvice
    from streamkit.management.endpoint import ManagedApplication, ManagementEndpoint

__all__ = ["PluginHooks"]

hookspec = pluggy.HookspecMarker("streamkit")


class PluginHooks:
    """The hooks, which a plugin implements as functions of a module or methods of an object."""

    @hookspec
    def streamkit_binder_types(self) -> Mapping[str, BinderType] | None:
        """Return binder types by the name that ``spring.cloud.stream.binders.<name>.type`` gives.

        Called when an application first needs a binder type.
        """

    @hookspec
    def streamkit_message_converters(self) -> Iterable[MessageConverter] | None:
        """Return message converters.

        Called once for each application. The converters are tried after those given to the application, and before the
        built-in ones.
        """

    @hookspec
    def streamkit_settings_sources(self, environment: Environment) -> Iterable[PropertySource] | None:
        """Return sources of settings; the first one has the highest precedence.

        Called each time the settings are loaded. The sources take precedence over settings files; environment
        variables, arguments and settings given in code take precedence over them.
        `streamkit.config.source.table_source` makes a source of a mapping.

        Args:
            environment: The settings loaded so far, from all other sources; they may contain the address of a
                configuration server, for instance.

        Raises:
            ConfigurationError: The settings cannot be read. The application does not start.
        """

    @hookspec
    def streamkit_management_endpoints(
        self, application: "ManagedApplication"
    ) -> "Iterable[ManagementEndpoint] | None":
        """Return management endpoints.

        Called when the endpoints of an application are created. Settings expose them and restrict their access by
        name, like streamkit's own.

        Args:
            application: The application of the endpoints; it may not be started yet.
        """

    @hookspec
    def streamkit_listener_advice(
        self, application: "ManagedApplication", listener: "AdvisedListener"
    ) -> "Iterable[ListenerAdvice] | None":
        """Return an advice for a listener: code around its calls.

        Called for each listener at each start of an application, before anything is connected.

        Args:
            application: The application, which is starting.
            listener: The listener.

        Raises:
            ConfigurationError: The listener cannot have the advice. The application does not start.
        """

    @hookspec
    def streamkit_message_keeper(
        self, application: "ManagedApplication", output: KeptOutput
    ) -> Iterable[MessageKeeper] | None:
        """Return a keeper for an output binding: it keeps messages while their messaging system is away.

        Called for each output binding that has no transactions, when it is made.

        Args:
            application: The application.
            output: The output binding.

        Raises:
            ConfigurationError: The settings of the keeper are wrong. The application does not start.
        """

    @hookspec
    def streamkit_message_tracer(
        self, application: "ManagedApplication", binding: TracedBinding
    ) -> Iterable[MessageTracer] | None:
        """Return a tracer for a binding: code around its sends, or around the calls of its listeners.

        Called for each binding when it is made, for an input once for each of its destinations. The first plugin
        that returns a tracer traces the binding.

        Args:
            application: The application.
            binding: The binding.
        """
