"""What a binding's settings are, and where each comes from."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from pydantic import BaseModel

from streamkit.config.durations import format_duration
from streamkit.config.function_properties import PollerProperties
from streamkit.config.origin import DEFAULT, Value, scalar_text
from streamkit.config.relaxed import kebab
from streamkit.config.secret import shown
from streamkit.config.settings import StreamSettings
from streamkit.config.shape import Location
from streamkit.config.support import limit_of
from streamkit.config.validation import Bound


@dataclass(frozen=True, slots=True)
class ExplainedSetting:
    """A setting in force.

    Attributes:
        key: Its name, from where the binding's settings begin.
        value: Its value, as a settings file would spell it.
        origin: Where it was set; `default` when nowhere.
        note: Why it has no effect, when it has none.
    """

    key: str
    value: str
    origin: str
    note: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nothing sets it."""
        return self.origin == str(DEFAULT)


def explain_binding(
    settings: Bound[StreamSettings], name: str, poller: Bound[PollerProperties]
) -> list[ExplainedSetting]:
    """Every setting under `spring.cloud.stream.bindings.<name>`, defaults included.

    Args:
        settings: `spring.cloud.stream.*`.
        name: The binding's name.
        poller: `spring.integration.poller.*`: how its supplier is polled where nothing else says it.
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


def _poller_origins(
    settings: Bound[StreamSettings], poller: Bound[PollerProperties]
) -> Iterator[tuple[str, Value]]:
    """Where the settings come from by which all suppliers are polled, the weaker spelling first."""
    for at, value in settings.origins.items():
        if at[0] == "poller":
            yield str(at[1]), value
    for at, value in poller.origins.items():
        yield str(at[0]), value


def explain_model(
    model: BaseModel, origins: Mapping[Location, Value], prefix: Location = ()
) -> Iterator[ExplainedSetting]:
    """Every setting of the model, in its order, groups flattened; of those not honoured, the ones that are set.

    Args:
        model: The settings.
        origins: Where those come from that were set, by their place.
        prefix: The place of `model` itself.
    """
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        place = (*prefix, info.alias or name)
        if isinstance(value, BaseModel):
            yield from explain_model(value, origins, place)
            continue
        origin = _origin_of(origins, place)
        limit = limit_of(info)
        if limit is not None and origin is None and not limit.only:
            continue
        note = limit.reason if limit is not None and (not limit.only or value in limit.only) else None
        key = _key(prefix, name)
        yield ExplainedSetting(key, setting_text(value, key), origin or str(DEFAULT), note)


def setting_text(value: object, key: str = "") -> str:
    """Return the value of a setting as a settings file would spell it; secrets are hidden."""
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


def _origin_of(origins: Mapping[Location, Value], place: Location) -> str | None:
    """Where the setting, or the first item of it, comes from."""
    return next((str(value.origin) for at, value in origins.items() if at[: len(place)] == place), None)


def _place_of(settings: StreamSettings, name: str) -> Location:
    known = settings.configured_name(name)
    return ("default",) if known is None else ("bindings", known)
