"""The settings of one binder type for all bindings: `spring.cloud.stream.<type>.{default,bindings.<name>}.*`.

A binding's own are read when it is made (`Environment.bind_extended`). This module looks at all of them, also
those of bindings that are not made: a key nobody knows is wrong wherever it stands.
"""

from functools import lru_cache
from types import GenericAlias
from typing import Any

from pydantic import BaseModel, create_model

from streamkit.config.environment import Environment
from streamkit.config.stream_properties import SettingsModel
from streamkit.errors import ConfigurationError, ConfigurationErrors


def extended_problems(
    environment: Environment, type_: str, consumer: type[BaseModel], producer: type[BaseModel]
) -> tuple[ConfigurationError, ...]:
    """What is wrong with the type's settings of bindings, and with its defaults; its `binder.*` is its own.

    Args:
        environment: All settings.
        type_: The binder's type, such as `rocketmq`.
        consumer: The model of `consumer.*`.
        producer: The model of `producer.*`.
    """
    model = _model_of(consumer, producer)
    try:
        environment.bound(environment.tree(f"spring.cloud.stream.{type_}", model, skip=("binder",)), model)
    except ConfigurationErrors as found:
        return found.errors
    return ()


@lru_cache(maxsize=16)
def _model_of(consumer: type[BaseModel], producer: type[BaseModel]) -> type[BaseModel]:
    sides = create_model(
        "Sides", __base__=SettingsModel, consumer=(consumer, consumer()), producer=(producer, producer())
    )
    fields: dict[str, Any] = {"default": (sides, sides()), "bindings": (GenericAlias(dict, (str, sides)), {})}
    return create_model("Extended", __base__=SettingsModel, **fields)
