"""The parts of an application that its settings alone determine, whatever its code is: binders and bindings.

Commands that judge settings, send a message or show those that arrive need no listeners, functions or container. So
these are not imported for them.
"""

from streamkit.binder.channels import Channels
from streamkit.binder.error_channels import ErrorChannels
from streamkit.binder.factory import BindingFactory
from streamkit.binder.keeping import MakeKeeper
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.registry import BinderRegistry
from streamkit.binder.tracing import MakeTracer
from streamkit.clock import SystemClock
from streamkit.config.environment import Environment
from streamkit.config.settings import StreamSettings
from streamkit.config.validation import Bound
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.plugins.application_plugins import ApplicationPlugins

__all__ = ["SettingsAlone"]


class SettingsAlone:
    """Binders and bindings that are made from settings; nothing is connected before a binding is started.

    Attributes:
        environment: All settings.
        settings: `spring.cloud.stream.*`, with the origin of each value.
        binders: The binders of the settings.
        channels: The channels of bindings by name.
        factory: Makes bindings.
    """

    def __init__(
        self,
        environment: Environment,
        settings: Bound[StreamSettings],
        plugins: ApplicationPlugins,
        *,
        named: NamedObjects | None = None,
        make_keeper: MakeKeeper | None = None,
        make_tracer: MakeTracer | None = None,
    ) -> None:
        """Make the parts; no binder is made yet.

        Args:
            environment: All settings.
            settings: `spring.cloud.stream.*`, as `streamkit.config.judgement.read_settings` returns it.
            plugins: The plugins, which have binder types and message converters.
            named: The objects that settings refer to by name; none if not given.
            make_keeper: Makes the keepers of output bindings; None for no keepers.
            make_tracer: Makes the tracers of bindings; None for no tracers.
        """
        self.environment = environment
        self.settings = settings
        name = environment.text("spring.application.name") or "application"
        self.binders = BinderRegistry(plugins.binder_types(), environment, settings.value, SystemClock(), name)
        errors = ErrorChannels()
        self.channels = Channels(errors)
        self.factory = BindingFactory(
            None,
            settings,
            environment=environment,
            registry=self.binders,
            converter=CompositeMessageConverter((), plugins.message_converters()),
            error_channels=errors,
            named=named or NamedObjects(),
            make_keeper=make_keeper,
            make_tracer=make_tracer,
        )
