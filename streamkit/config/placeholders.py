"""Placeholders: `${key}` and `${key:default}` stand for other settings, nested as deep as anyone likes.

${orders.topic:${default.topic:orders}}        \\${not-a-placeholder}
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from streamkit.errors import ConfigurationError

Lookup: TypeAlias = Callable[[str], str | None]
"""The raw value of a key, its own placeholders unresolved; None when nothing sets it."""


def resolve(text: str, lookup: Lookup) -> str:
    """The text with every placeholder replaced.

    Raises:
        ConfigurationError: A placeholder has neither value nor default, or leads back to itself.
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
        f"nothing sets {key!r}, which the placeholder ${{{key}}} stands for; "
        f"set it, or give a default: ${{{key}:…}}",
        key=key,
    )


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces: (False, literal) and (True, what stands between `${` and its `}`)."""
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
    """The index of the `}` that ends the placeholder whose inside starts at `position`; -1: there is none."""
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
    """`key:default` at the first colon outside nested placeholders."""
    depth = 0
    for index, character in enumerate(inner):
        if inner.startswith("${", index):
            depth += 1
        elif character == "}":
            depth -= 1
        elif character == ":" and depth == 0:
            return inner[:index], inner[index + 1 :]
    return inner, None
