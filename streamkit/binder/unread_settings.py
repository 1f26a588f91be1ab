"""Settings of other binder types than the one that a binding uses, which no binder reads.

An application changes its messaging system by one setting, ``default-binder``. The settings of the old type stay in
its files. A setting that decides which messages are delivered, to whom or in which order is refused, unless the
settings of the binding's own type ask for the same; every other setting causes a warning. With the binder `kafka`::

    rocketmq.bindings.in.consumer.tags=paid            refused: Kafka has no tags
    rocketmq.bindings.in.consumer.broadcasting=true    refused, without kafka.bindings.in.consumer.broadcast=true
    rocketmq.bindings.in.consumer.orderly=true         nothing: Kafka's consumers are ordered
    rocketmq.bindings.in.consumer.pull-batch-size=64   a warning
    rocketmq.default.consumer.*                        the same, if no binding of the application uses RocketMQ
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeAlias

import msgspec

from streamkit.binder.binder import Binder
from streamkit.binder.binder_type import BinderTypes
from streamkit.binder.delivery import Effect, ExtendedConsumerProperties, ExtendedProducerProperties
from streamkit.config.environment import Environment
from streamkit.config.located_errors import located, setting_of
from streamkit.config.origin import Value
from streamkit.config.relaxed import uniform
from streamkit.config.settings import PREFIX
from streamkit.config.settings_model import fields_of
from streamkit.config.shape import Location
from streamkit.config.tree import RawTree
from streamkit.config.verdict import SettingWarning, Verdict
from streamkit.errors import ConfigurationError, ConfigurationErrors

__all__ = ["Side", "UnreadSettings"]

Extended: TypeAlias = ExtendedConsumerProperties | ExtendedProducerProperties


class Side(Enum):
    """The side of a binding, as settings name it."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


class _Made(msgspec.Struct, frozen=True):
    """A binding that was made, with its binder and the settings that its binder reads."""

    name: str
    side: Side
    binder: Binder
    own: Extended


class UnreadSettings:
    """Finds the settings of other binder types than those that the application's bindings use."""

    def __init__(self, environment: Environment, types: BinderTypes) -> None:
        """Prepare the checks.

        Args:
            environment: All settings.
            types: The installed binder types.
        """
        self._environment = environment
        self._types = types
        self._configured = [name for name in types.names if environment.sets_below(f"{PREFIX}.{name}")]
        self._made: list[_Made] | None = []

    def check(self, binding: str, side: Side, binder: Binder, own: Extended) -> None:
        """Check the settings that other binder types have for one binding.

        Args:
            binding: The binding's name.
            side: Its side.
            binder: Its binder.
            own: The settings that its binder reads.

        Raises:
            ConfigurationErrors: Settings that decide about deliveries would be ignored.
        """
        made = _Made(binding, side, binder, own)
        if self._made is not None:
            self._made.append(made)
        problems: list[ConfigurationError] = []
        for type_ in self._others({binder.extended_type}):
            tree = self._tree(type_, f"bindings[{binding}].{side.value}", side)
            problems += self._problems(tree, type_, made)
        if problems:
            raise ConfigurationErrors(problems)

    def check_defaults(self) -> None:
        """Check the settings `<type>.default.*` of the types that no binding uses; called when all bindings are made.

        Raises:
            ConfigurationErrors: Settings that decide about deliveries would be ignored.
        """
        all_made, self._made = self._made or [], None
        problems: dict[str | None, ConfigurationError] = {}
        for type_ in self._others({made.binder.extended_type for made in all_made}):
            for made in all_made:
                tree = self._tree(type_, f"default.{made.side.value}", made.side)
                for problem in self._problems(tree, type_, made):
                    problems.setdefault(problem.key, problem)  # one error for each setting, not for each binding
        if problems:
            raise ConfigurationErrors(list(problems.values()))

    def _others(self, used: set[str]) -> Iterator[str]:
        return (type_ for type_ in self._configured if type_ not in used)

    def _tree(self, type_: str, below: str, side: Side) -> RawTree:
        return self._environment.tree(f"{PREFIX}.{type_}.{below}", self._model(type_, side))

    def _model(self, type_: str, side: Side) -> type[Extended]:
        consumer, producer = self._types.extended_models(type_)
        return consumer if side is Side.CONSUMER else producer

    def _problems(self, tree: RawTree, type_: str, made: _Made) -> Iterator[ConfigurationError]:
        """Yield the refused settings; log a warning for each of the others."""
        if not tree.origins:
            return
        bound = self._environment.bound(tree, self._model(type_, made.side))
        decided: set[Location] = set()
        own = {effect.name: effect for effect in made.own.effects()}
        for effect in bound.value.effects():
            setting = setting_of(bound.origins, effect.properties)
            if setting is None or effect.value is None:
                continue
            decided |= _places(bound.origins, effect)
            same = own.get(effect.name)
            if same is None or same.value != effect.value:
                yield _refusal(setting, effect, type_, made)
        self._environment.note(
            SettingWarning(
                value,
                f"binding {made.name!r} uses a binder of type {made.binder.extended_type!r}",
                Verdict.ANOTHER_BINDER,
            )
            for at, value in bound.origins.items()
            if at not in decided
        )


def _places(origins: Mapping[Location, Value], effect: Effect) -> set[Location]:
    """Return the locations of the settings that may ask for an effect."""
    spellings = {tuple(map(uniform, name.split("."))) for name in effect.properties}
    return {at for at in origins if tuple(uniform(str(step)) for step in at) in spellings}


def _refusal(setting: Value, effect: Effect, type_: str, made: _Made) -> ConfigurationError:
    advice = _advice(effect, type_, made)
    return located(
        setting,
        f"binding {made.name!r} uses binder {made.binder.name!r}, which reads settings of type "
        f"{made.binder.extended_type!r} only, so {effect.name} would be lost: {advice}",
        suggestion=advice,
    )


def _advice(effect: Effect, type_: str, made: _Made) -> str:
    binder = made.binder
    if binder.extended_type_key is not None:
        return f"set {binder.extended_type_key}={type_}, or remove this setting"
    own = _own_name(type(made.own), effect.properties)
    can_do = effect.capability is None or effect.capability in binder.possible_capabilities
    if can_do and own is not None:
        key = f"{PREFIX}.{binder.extended_type}.bindings.{made.name}.{made.side.value}.{own}"
        return f"ask for the same with {key}, or remove this setting"
    return f"{effect.instead.replace('<name>', made.name)}, and remove this setting"


def _own_name(model: type[Extended], names: Iterable[str]) -> str | None:
    """Return the first of these settings that a model has."""
    known = set(map(uniform, fields_of(model)))
    return next((name for name in names if uniform(name) in known), None)
