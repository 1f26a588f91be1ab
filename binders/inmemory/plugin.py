"""The plugin that offers binder type `inmemory`."""

from collections.abc import Mapping

from binders.inmemory.binder_type import TYPE
from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.binder_type import BinderType
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.config.settings_model import SettingsModel
from streamkit.plugins import hookimpl

__all__ = ["InMemoryBinderType", "streamkit_binder_types"]


class InMemoryBinderType(BinderType):
    """The type of in-memory binders; an application gets one only if its settings name the type."""

    is_default_candidate = False
    is_in_process = True

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return a binder, which is not started yet.

        Args:
            name: The binder's name in the settings.
            context: Its settings, its clock and the application's name.

        Raises:
            ConfigurationError: Its settings are wrong.
        """
        from binders.inmemory.binder import InMemoryBinder

        return InMemoryBinder(name, context)

    def settings_models(self) -> Mapping[str, type[SettingsModel]]:
        """Return the model of the binders' own settings."""
        from binders.inmemory.properties import InMemoryBinderProperties

        return {f"spring.cloud.stream.{TYPE}.binder": InMemoryBinderProperties}

    def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
        """Return the models of the extended properties of bindings with `stands-in-for=inmemory`."""
        from binders.inmemory.properties import InMemoryConsumerProperties, InMemoryProducerProperties

        return InMemoryConsumerProperties, InMemoryProducerProperties


@hookimpl
def streamkit_binder_types() -> Mapping[str, BinderType]:
    """Return the type by its name."""
    return {TYPE: InMemoryBinderType()}
