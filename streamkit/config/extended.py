"""The settings of one binder type for all bindings: `spring.cloud.stream.<type>.{default,bindings.<name>}.*`.

`Environment.bind_extended` reads the settings of a binding when the binding is made. This module checks the settings of
all bindings, also of those that are not made: an unknown key is an error for any binding.
"""

from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any, Final, TypeAlias

from streamkit.config.environment import Environment
from streamkit.config.settings_model import SettingsModel, setting
from streamkit.config.tree import RawTree
from streamkit.config.validation import validate, without_effect
from streamkit.errors import ConfigurationError, ConfigurationErrors

OTHER_PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {"streams": "there is no binder for Kafka Streams"},
}
"""The parts of a type's settings that belong to another of Spring's binders, and why they have no effect."""

ExtendedModels: TypeAlias = Callable[[str], tuple[type[SettingsModel], type[SettingsModel]]]
"""A function that returns the models of a binder type's `consumer.*` and `producer.*`."""


def extended_problems(environment: Environment, type_: str, models: ExtendedModels) -> tuple[ConfigurationError, ...]:
    """Return the problems of a binder type's settings of bindings and of its defaults; `binder.*` is not checked.

    Args:
        environment: All settings.
        type_: The binder's type, such as `rocketmq`.
        models: Returns the models of the type; called only if there are settings of the type.
    """
    if not environment.sets_below(f"spring.cloud.stream.{type_}"):
        return ()
    tree = extended_tree(environment, type_, models)
    environment.note(without_effect(tree))
    if not tree.origins and not tree.problems:  # only `binder.*` is set
        return ()
    try:
        validate(tree, _model_of(*models(type_)))
    except ConfigurationErrors as found:
        return found.errors
    return ()


def extended_tree(environment: Environment, type_: str, models: ExtendedModels) -> RawTree:
    """Return the raw values of a binder type's settings of bindings and of its defaults.

    Args:
        environment: All settings.
        type_: The binder's type.
        models: Returns the models of the type.
    """
    return environment.tree(
        f"spring.cloud.stream.{type_}", _model_of(*models(type_)), skip=("binder", *OTHER_PARTS.get(type_, ()))
    )


_models: Final[dict[tuple[type[SettingsModel], type[SettingsModel]], type[SettingsModel]]] = {}


def _model_of(consumer: type[SettingsModel], producer: type[SettingsModel]) -> type[SettingsModel]:
    known = _models.get((consumer, producer))
    if known is None:
        sides = _made("Sides", {"consumer": consumer, "producer": producer})
        known = _made("Extended", {"default": sides, "bindings": GenericAlias(dict, (str, sides))})
        _models[consumer, producer] = known
    return known


def _made(name: str, annotations: Mapping[str, Any]) -> type[SettingsModel]:
    """Return a model with fields whose defaults are those of their types."""
    defaults = {field: setting(default_factory=type_) for field, type_ in annotations.items()}
    return type(name, (SettingsModel,), {"__annotations__": annotations, **defaults})
