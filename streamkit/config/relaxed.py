"""Relaxed names: `nameServer`, `name-server`, `name_server` and `NAME_SERVER` are the same name.

    spring.cloud.stream.bindings[my.orders].consumer.maxAttempts        a key
    spring  cloud  stream  bindings  my.orders  consumer  maxAttempts   its segments
    spring  cloud  stream  bindings  my.orders  consumer  maxattempts   their uniform forms

Two keys are the same if the uniform forms of their segments are. The name of an environment variable does not show
where one segment ends and the next begins: `SPRING_CLOUD_STREAM_BINDINGS_INPUT_GROUP` can be split only with the
knowledge of the settings model (`streamkit.config.shape`).
"""

import re
from typing import TypeAlias

Segments: TypeAlias = tuple[str, ...]

_SEGMENT = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)|(\.)")
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def parse_key(text: str) -> Segments:
    """Return the segments of a key; the text between brackets is one segment, whatever characters it has."""
    return tuple(bracketed or plain for bracketed, plain, _ in _SEGMENT.findall(text) if bracketed or plain)


def format_key(segments: Segments) -> str:
    """Return the key of some segments, with brackets around indexes and around names with special characters."""
    text = ""
    for segment in segments:
        if segment.isdigit() or not _PLAIN.fullmatch(segment):
            text += f"[{segment}]"
        else:
            text += f".{segment}" if text else segment
    return text


def uniform(name: str) -> str:
    """Return the uniform form of a name, which is equal for all relaxed spellings: `nameserver`.

    A `|` is left out, because the bindings of the functions `upper|echo` are called `upperecho-in-0` and so on.
    """
    return name.replace("-", "").replace("_", "").replace("|", "").lower()


def uniform_key(text: str) -> Segments:
    """Return the uniform forms of a key's segments."""
    return tuple(uniform(segment) for segment in parse_key(text))


def kebab(name: str) -> str:
    """Return a name in the spelling of the documentation: `max-attempts` for `max_attempts` or `maxAttempts`.

    An underscore at the end is left out: a field whose name pydantic needs itself has one, such as `schema_`.
    """
    return _CAMEL_HUMP.sub("-", name.rstrip("_")).replace("_", "-").lower()
