"""What the framework finds under type `inmemory`."""

from collections.abc import Mapping

from pydantic import BaseModel

from binders.inmemory.binder_type import TYPE
from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.plugin import hookimpl


@hookimpl
def streamkit_create_binder(type: str, name: str, context: BinderContext) -> Binder | None:  # noqa: A002
    """A binder whose destinations are in memory."""
    if type != TYPE:
        return None
    from binders.inmemory.binder import InMemoryBinder

    return InMemoryBinder(name, context)


@hookimpl
def streamkit_is_default_candidate(type: str) -> bool | None:  # noqa: A002
    """Only applications that ask for memory get it."""
    return False if type == TYPE else None


@hookimpl
def streamkit_settings_models(type: str) -> Mapping[str, type[BaseModel]] | None:  # noqa: A002
    """The binder's own settings."""
    if type != TYPE:
        return None
    from binders.inmemory.properties import InMemoryBinderProperties

    return {f"spring.cloud.stream.{TYPE}.binder": InMemoryBinderProperties}


@hookimpl
def streamkit_extended_models(type: str) -> tuple[ConsumerModel, ProducerModel] | None:  # noqa: A002
    """The extended properties of bindings, where the binder stands in for no other type."""
    if type != TYPE:
        return None
    from binders.inmemory.properties import InMemoryConsumerProperties, InMemoryProducerProperties

    return InMemoryConsumerProperties, InMemoryProducerProperties
