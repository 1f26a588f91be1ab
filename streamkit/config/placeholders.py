"""Placeholders: `${key}` and `${key:default}` stand for other settings, nested to any depth.

${orders.topic:${default.topic:orders}}        \\${not-a-placeholder}
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from streamkit.errors import ConfigurationError

Lookup: TypeAlias = Callable[[str], str | None]
"""A function that returns the raw value of a key, with placeholders; None if no source sets the key."""


def resolve(text: str, lookup: Lookup) -> str:
    """Return a text with every placeholder replaced.

    Args:
        text: The text.
        lookup: Returns the raw values of the keys.

    Raises:
        ConfigurationError: A placeholder has neither a value nor a default, or refers to itself through others.
    """
    return text if "${" not in text else _resolve(text, lookup, ())


def _resolve(text: str, lookup: Lookup, path: tuple[str, ...]) -> str:
    return "".join(
        _replacement(part, lookup, path) if is_placeholder else part for is_placeholder, part in _parts(text)
    )


def _replacement(inner: str, lookup: Lookup, path: tuple[str, ...]) -> str:
    key, default = _split_default(inner)
    key = _resolve(key, lookup, path).strip()
    if key in path:
        chain = " → ".join((*path[path.index(key) :], key))
        raise ConfigurationError(f"the placeholder ${{{key}}} leads back to itself: {chain}", key=key)
    value = lookup(key)
    if value is not None:
        return _resolve(value, lookup, (*path, key))
    if default is not None:
        return _resolve(default, lookup, path)
    raise ConfigurationError(
        f"nothing sets {key!r}, which the placeholder ${{{key}}} stands for; set it, or give a default: ${{{key}:…}}",
        key=key,
    )


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a text: (False, literal text) and (True, the text between `${` and its `}`)."""
    position = 0
    while (start := text.find("${", position)) >= 0:
        if start > 0 and text[start - 1] == "\\":
            yield False, text[position : start - 1] + "${"
            position = start + 2
            continue
        end = _closing(text, start + 2)
        if end < 0:
            break
        yield False, text[position:start]
        yield True, text[start + 2 : end]
        position = end + 1
    yield False, text[position:]


def _closing(text: str, position: int) -> int:
    """Return the index of the `}` that ends a placeholder; -1 if it is missing.

    Args:
        text: The whole text.
        position: The index behind the `${` of the placeholder.
    """
    depth = 0
    while position < len(text):
        if text.startswith("${", position):
            depth += 1
            position += 1
        elif text[position] == "}":
            if depth == 0:
                return position
            depth -= 1
        position += 1
    return -1


def _split_default(inner: str) -> tuple[str, str | None]:
    """Split `key:default` at the first colon outside of nested placeholders; the default is None without a colon."""
    depth = 0
    for index, character in enumerate(inner):
        if inner.startswith("${", index):
            depth += 1
        elif character == "}":
            depth -= 1
        elif character == ":" and depth == 0:
            return inner[:index], inner[index + 1 :]
    return inner, None
