"""The plugin that offers the binder type `rocketmq`. The client is imported only when a binder is made."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from binders.rocket.capabilities import POSSIBLE_CAPABILITIES
from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.binder_type import BinderType
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.stand_in import StandIn
from streamkit.config.environment import Environment
from streamkit.config.settings_model import SettingsModel
from streamkit.config.validation import not_in_memory
from streamkit.plugins import hookimpl

__all__ = ["TYPE", "RocketBinderType", "streamkit_binder_types"]

TYPE = "rocketmq"


class RocketBinderType(BinderType):
    """The type of binders for RocketMQ: the bundled broker or Apache RocketMQ."""

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return a binder with a name; `start` connects it.

        Raises:
            ConfigurationErrors: The settings are wrong.
        """
        from binders.rocket.binder import RocketBinder

        return RocketBinder(name, context)

    def shared_system(self, name: str, context: BinderContext) -> AbstractAsyncContextManager[Mapping[str, str]] | None:
        """Return a context manager that runs the embedded broker, if the settings ask for one."""
        from binders.rocket.binder import RocketBinder

        return RocketBinder(name, context).shared()

    def settings_models(self) -> Mapping[str, type[SettingsModel]]:
        """Return the models of the binder's settings and of Spring's RocketMQ starter, by prefix."""
        from binders.rocket.binder_properties import RocketBinderProperties, RocketSpringProperties

        return {f"spring.cloud.stream.{TYPE}.binder": RocketBinderProperties, TYPE: RocketSpringProperties}

    def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
        """Return the models of the consumer and producer settings of RocketMQ bindings."""
        from binders.rocket.consumer_properties import RocketConsumerProperties
        from binders.rocket.producer_properties import RocketProducerProperties

        return RocketConsumerProperties, RocketProducerProperties

    def stand_in(self, environment: Environment) -> StandIn:
        """Return the terms of a RocketMQ binder; warn of the binder's settings that are not imitated in memory.

        Raises:
            ConfigurationErrors: The binder's settings are wrong.
        """
        from binders.rocket.binder_properties import RocketBinderProperties

        prefix = f"spring.cloud.stream.{TYPE}.binder"
        bound = environment.bound(environment.tree(prefix, RocketBinderProperties), RocketBinderProperties)
        environment.note(not_in_memory(bound))
        return StandIn(
            *self.extended_models(),
            capabilities=POSSIBLE_CAPABILITIES,
            delay_levels=bound.value.message_delay_level,
            producer_group=bound.value.group,
        )


@hookimpl
def streamkit_binder_types() -> Mapping[str, BinderType]:
    """Return the binder type by its name."""
    return {TYPE: RocketBinderType()}
