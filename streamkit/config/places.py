"""Where settings stand: finding the setting that asked for something, and errors that name the setting's place."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from streamkit.config.origin import Value
from streamkit.config.relaxed import uniform
from streamkit.config.secret import is_secret, without_secrets
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


_ITEM: Final = re.compile(r"[^,;]+")


def located(
    value: Value | None,
    reason: Exception | str,
    *,
    suggestion: str | None = None,
    secrets: Iterable[Value] = (),
) -> ConfigurationError:
    """Return the error for a setting that is wrong: place, key, value and reason, without the secrets in them.

    Args:
        value: The setting; None when no setting is to blame.
        reason: Why the setting is wrong.
        suggestion: What to write instead.
        secrets: Further settings that the reason may repeat.
    """
    text = str(reason)
    for each in filter(None, (value, *secrets)):
        text = _without(text, each)
    text = without_secrets(text)
    if value is None:
        return ConfigurationError(text, suggestion=suggestion)
    return ConfigurationError(
        f"{value.origin}: {value.key}={value.shown}: {text}",
        key=value.key,
        value=value.shown,
        origin=str(value.origin),
        suggestion=suggestion,
    )


def _without(text: str, value: Value) -> str:
    """Return an error's text without the secrets of a value; another text where items of the value are left in it."""
    whole = str(value)
    if value.shown == whole:
        return text
    for spelling in (whole, repr(whole)[1:-1]):
        text = text.replace(spelling, value.shown)
    is_repeated = is_secret(value.key) and any(item in text for item in _ITEM.findall(whole))
    return "this value is not accepted" if is_repeated else text
