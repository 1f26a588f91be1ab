"""The effective settings of a binding, each with its origin."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from streamkit.config.durations import format_duration
from streamkit.config.function_properties import PollerProperties
from streamkit.config.origin import DEFAULT, Value, scalar_text
from streamkit.config.relaxed import kebab
from streamkit.config.secret import shown
from streamkit.config.setting_limits import limit_of
from streamkit.config.settings import StreamSettings
from streamkit.config.settings_model import SettingsModel
from streamkit.config.shape import Location, Section, section_of
from streamkit.config.validation import Bound

if TYPE_CHECKING:
    from pydantic import BaseModel


class ExplainedSetting(msgspec.Struct, frozen=True):
    """An effective setting.

    Attributes:
        key: The key, below the prefix of the binding.
        value: The value, as written in a settings file.
        origin: The place that sets the value; `default` if no source does.
        note: Why the setting has no effect; None if it has one.
        set_by: The value as the source has it; None if no source sets it.
    """

    key: str
    value: str
    origin: str
    note: str | None = None
    set_by: Value | None = None

    @property
    def is_default(self) -> bool:
        """Whether no source sets the value."""
        return self.origin == str(DEFAULT)


def explain_binding(
    settings: Bound[StreamSettings], name: str, poller: Bound[PollerProperties]
) -> list[ExplainedSetting]:
    """Return all settings of a binding, `spring.cloud.stream.bindings.<name>.*`, also those that no source sets.

    Args:
        settings: `spring.cloud.stream.*`.
        name: The binding's name.
        poller: `spring.integration.poller.*`: how the supplier is polled, unless a stronger setting says so.
    """
    place = _place_of(settings.value, name)
    origins = {at[len(place) :]: value for at, value in settings.origins.items() if at[: len(place)] == place}
    binding = settings.value.binding(name)
    effective = binding.producer.poller.over(poller.value.over(settings.value.poller))
    inherited: dict[Location, Value] = {
        ("producer", "poller", key): value
        for key, value in _poller_origins(settings, poller)
        if getattr(effective, key) is not None
    }
    producer = binding.producer.model_copy(update={"poller": effective})
    rows = list(explain_model(binding.model_copy(update={"producer": producer}), {**inherited, **origins}))
    if ("destination",) in origins:
        return rows
    return [ExplainedSetting("destination", name, "the binding's name"), *rows[1:]]


def _poller_origins(settings: Bound[StreamSettings], poller: Bound[PollerProperties]) -> Iterator[tuple[str, Value]]:
    """Yield the origins of the polling settings for all suppliers, those of the older, weaker prefix first."""
    for at, value in settings.origins.items():
        if at[0] == "poller":
            yield str(at[1]), value
    for at, value in poller.origins.items():
        yield str(at[0]), value


def explain_model(
    model: "SettingsModel | BaseModel", origins: Mapping[Location, Value], prefix: Location = ()
) -> Iterator[ExplainedSetting]:
    """Yield the settings of a model in its order, groups flattened.

    A setting that is ignored or refused whatever its value is left out unless a source sets it.

    Args:
        model: The settings.
        origins: The values that sources set, by location.
        prefix: The location of `model` itself.
    """
    for known in dict.fromkeys(section_of(type(model)).fields.values()):
        name = known.name
        value: Any = getattr(model, name)
        location = (*prefix, known.key)
        if isinstance(known.shape, Section):
            yield from explain_model(value, origins, location)
            continue
        origin = _origin_of(origins, location)
        limit = limit_of(known.declared.notes)
        if limit is not None and origin is None and not limit.only:
            continue
        note = limit.reason if limit is not None and (not limit.only or value in limit.only) else None
        key = _key(prefix, name)
        yield ExplainedSetting(
            key, setting_text(value, key), str(DEFAULT if origin is None else origin.origin), note, origin
        )


def setting_text(value: object, key: str = "") -> str:
    """Return the value of a setting as written in a settings file; secrets are hidden.

    Args:
        value: The value.
        key: The key, which tells whether the value is a secret.
    """
    return _text(shown(key, value))


def _text(value: object) -> str:
    match value:
        case None | bool():
            return scalar_text(value)
        case timedelta():
            return format_duration(value)
        case Enum():
            return str(value.value)
        case Mapping():
            return ",".join(f"{key}={_text(item)}" for key, item in value.items())
        case Collection() if not isinstance(value, str):
            return ",".join(map(_text, value))
    return str(value)


def _key(prefix: Location, name: str) -> str:
    return ".".join(kebab(str(step)) for step in (*prefix, name))


def _origin_of(origins: Mapping[Location, Value], place: Location) -> Value | None:
    """Return the value of a setting or of its first item as its source has it; None if no source sets it."""
    return next((value for at, value in origins.items() if at[: len(place)] == place), None)


def _place_of(settings: StreamSettings, name: str) -> Location:
    known = settings.configured_name(name)
    return ("default",) if known is None else ("bindings", known)
