"""Errors that name the setting they are about, its value and the place that sets it."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from streamkit.config.origin import Value
from streamkit.config.relaxed import uniform
from streamkit.config.secret import is_secret, without_secrets
from streamkit.errors import ConfigurationError

if TYPE_CHECKING:
    from streamkit.config.shape import Location

__all__ = ["located", "setting_of"]


def setting_of(origins: "Mapping[Location, Value]", properties: Iterable[str]) -> Value | None:
    """Return the first value that is set by one of several keys; None if none of them is set.

    Args:
        origins: The values that are set, by their location in the settings model.
        properties: The keys, in any relaxed spelling.
    """
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
    """Return the error for a wrong setting, with its place, key, value and reason; secrets are hidden.

    Args:
        value: The setting; None when no setting is to blame.
        reason: Why the setting is wrong.
        suggestion: What to write instead.
        secrets: Further settings whose values the reason may repeat.
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
    """Return an error's text with a secret value hidden.

    If parts of the value remain in the text, return a fixed text instead.
    """
    whole = str(value)
    if value.shown == whole:
        return text
    for spelling in (whole, repr(whole)[1:-1]):
        text = text.replace(spelling, value.shown)
    is_repeated = is_secret(value.key) and any(item in text for item in _ITEM.findall(whole))
    return "this value is not accepted" if is_repeated else text
