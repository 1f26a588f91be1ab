"""Where settings stand: finding the one that asked for something, and telling its place with an error."""

from collections.abc import Iterable, Mapping

from streamkit.config.origin import Value
from streamkit.config.relaxed import uniform
from streamkit.config.shape import Location
from streamkit.errors import ConfigurationError

__all__ = ["located", "setting_of"]


def setting_of(origins: Mapping[Location, Value], properties: Iterable[str]) -> Value | None:
    """Return the first value that was set under one of these spellings."""
    spellings = {tuple(map(uniform, text.split("."))) for text in properties}
    return next(
        (value for at, value in origins.items() if tuple(uniform(str(step)) for step in at) in spellings),
        None,
    )


def located(value: Value | None, error: Exception) -> ConfigurationError:
    """Return ``error`` with the place of the setting that caused it."""
    if value is None:
        return ConfigurationError(str(error))
    return ConfigurationError(
        f"{value.origin}: {value.key}={value}: {error}",
        key=value.key,
        value=value.value,
        origin=str(value.origin),
    )
