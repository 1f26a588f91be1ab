"""The hooks by which the framework makes the Kafka binder. Its client is imported when the hook is called."""

from collections.abc import Mapping

from pydantic import BaseModel

from binders.kafka.binder_type import TYPE
from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.plugin import hookimpl
from streamkit.errors import ConfigurationError


@hookimpl
def streamkit_create_binder(type: str, name: str, context: BinderContext) -> Binder | None:  # noqa: A002 - the hook's name
    """A Kafka binder called `name`, not started yet."""
    if type != TYPE:
        return None
    try:
        from binders.kafka.binder import KafkaBinder
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kafka":
            raise
        raise ConfigurationError(
            f"binder {name!r} needs the package kafka-python: pip install 'streamkit[kafka]'"
        ) from error
    return KafkaBinder(name, context)


@hookimpl
def streamkit_is_default_candidate(type: str) -> bool | None:  # noqa: A002 - the hook's name
    """Only applications that name it get it: where nothing is named, the RocketMQ binder brings its own broker."""
    return False if type == TYPE else None


@hookimpl
def streamkit_settings_models(type: str) -> Mapping[str, type[BaseModel]] | None:  # noqa: A002 - the hook's name
    """The binder's own settings."""
    if type != TYPE:
        return None
    from binders.kafka.binder_properties import KafkaBinderProperties

    return {f"spring.cloud.stream.{TYPE}.binder": KafkaBinderProperties}


@hookimpl
def streamkit_extended_models(type: str) -> tuple[ConsumerModel, ProducerModel] | None:  # noqa: A002 - the hook's name
    """The models of Kafka's extended consumer and producer properties."""
    if type != TYPE:
        return None
    from binders.kafka.properties import KafkaConsumerProperties, KafkaProducerProperties

    return KafkaConsumerProperties, KafkaProducerProperties
