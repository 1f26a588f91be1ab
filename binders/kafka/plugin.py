"""The plugin that offers the binder type `kafka`. kafka-python is imported only when a binder is made."""

from collections.abc import Mapping

from binders.kafka.binder_type import TYPE
from binders.kafka.capabilities import CAPABILITIES
from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.binder_type import BinderType
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.stand_in import StandIn
from streamkit.config.environment import Environment
from streamkit.config.settings_model import SettingsModel
from streamkit.config.validation import not_in_memory
from streamkit.errors import ConfigurationError
from streamkit.plugins import hookimpl

__all__ = ["KafkaBinderType", "streamkit_binder_types"]


class KafkaBinderType(BinderType):
    """The type of binders for Apache Kafka. It is never the default: settings must name the binder.

    Without a named binder, an application uses the RocketMQ binder, which has a broker of its own.
    """

    is_default_candidate = False

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return a binder with a name; `start` connects it.

        Raises:
            ConfigurationError: kafka-python is not installed or has a version that the binder refuses, or the settings
                are wrong.
        """
        try:
            from binders.kafka.binder import KafkaBinder
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "kafka":
                raise
            raise ConfigurationError(
                f"binder {name!r} needs the package kafka-python: pip install 'streamkit-messaging[kafka]'"
            ) from error
        return KafkaBinder(name, context)

    def settings_models(self) -> Mapping[str, type[SettingsModel]]:
        """Return the models of the binder's settings and of Spring Boot's, by prefix."""
        from binders.kafka.binder_properties import PREFIX, KafkaBinderProperties
        from binders.kafka.boot_properties import PREFIX as BOOT
        from binders.kafka.boot_properties import KafkaProperties

        return {PREFIX: KafkaBinderProperties, BOOT: KafkaProperties}

    def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
        """Return the models of the consumer and producer settings of Kafka bindings."""
        from binders.kafka.properties import KafkaConsumerProperties, KafkaProducerProperties

        return KafkaConsumerProperties, KafkaProducerProperties

    def stand_in(self, environment: Environment) -> StandIn:
        """Return the terms of a Kafka binder; warn of the binder's settings that are not imitated in memory.

        Raises:
            ConfigurationErrors: The binder's settings are wrong.
        """
        for prefix, model in self.settings_models().items():
            environment.note(not_in_memory(environment.bound(environment.tree(prefix, model), model)))
        return StandIn(*self.extended_models(), capabilities=CAPABILITIES)


@hookimpl
def streamkit_binder_types() -> Mapping[str, BinderType]:
    """Return the binder type by its name."""
    return {TYPE: KafkaBinderType()}
