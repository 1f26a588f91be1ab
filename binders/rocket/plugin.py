"""The hooks by which the framework makes the RocketMQ binder. Its client is imported when the hook is called."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from pydantic import BaseModel

from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.plugin import hookimpl

TYPE = "rocketmq"


@hookimpl
def streamkit_create_binder(type: str, name: str, context: BinderContext) -> Binder | None:  # noqa: A002 - the hook's name
    """A RocketMQ binder called `name`, not started yet."""
    if type != TYPE:
        return None
    from binders.rocket.binder import RocketBinder

    return RocketBinder(name, context)


@hookimpl
def streamkit_shared_system(
    type: str,  # noqa: A002 - the hook's name
    name: str,
    context: BinderContext,
) -> AbstractAsyncContextManager[Mapping[str, str]] | None:
    """The embedded broker, where the settings ask for one."""
    if type != TYPE:
        return None
    from binders.rocket.binder import RocketBinder

    return RocketBinder(name, context).shared()


@hookimpl
def streamkit_settings_models(type: str) -> Mapping[str, type[BaseModel]] | None:  # noqa: A002 - the hook's name
    """The binder's own settings, and those of Spring's RocketMQ starter that it reads."""
    if type != TYPE:
        return None
    from binders.rocket.binder_properties import RocketBinderProperties, RocketSpringProperties

    return {f"spring.cloud.stream.{TYPE}.binder": RocketBinderProperties, TYPE: RocketSpringProperties}


@hookimpl
def streamkit_extended_models(type: str) -> tuple[ConsumerModel, ProducerModel] | None:  # noqa: A002 - the hook's name
    """The models of RocketMQ's extended consumer and producer properties."""
    if type != TYPE:
        return None
    from binders.rocket.consumer_properties import RocketConsumerProperties
    from binders.rocket.producer_properties import RocketProducerProperties

    return RocketConsumerProperties, RocketProducerProperties
