"""The settings of one binder type for all bindings: `spring.cloud.stream.<type>.{default,bindings.<name>}.*`.

A binding's own are read when it is made (`Environment.bind_extended`). This module looks at all of them, also
those of bindings that are not made: a key nobody knows is wrong wherever it stands.
"""

from collections.abc import Callable
from functools import lru_cache
from types import GenericAlias
from typing import Any, TypeAlias

from pydantic import BaseModel, create_model

from streamkit.config.environment import Environment
from streamkit.config.settings_model import SettingsModel
from streamkit.errors import ConfigurationError, ConfigurationErrors

ExtendedModels: TypeAlias = Callable[[str], tuple[type[BaseModel], type[BaseModel]]]
"""The models of a type's `consumer.*` and `producer.*`."""


def extended_problems(
    environment: Environment, type_: str, models: ExtendedModels
) -> tuple[ConfigurationError, ...]:
    """What is wrong with the type's settings of bindings, and with its defaults; its `binder.*` is its own.

    Args:
        environment: All settings.
        type_: The binder's type, such as `rocketmq`.
        models: Asked for the type's models, when there are settings of it.
    """
    prefix = f"spring.cloud.stream.{type_}"
    if not environment.sets_below(prefix):
        return ()
    model = _model_of(*models(type_))
    try:
        environment.bound(environment.tree(prefix, model, skip=("binder",)), model)
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
