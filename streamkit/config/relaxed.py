"""Relaxed names: `nameServer`, `name-server`, `name_server` and `NAME_SERVER` are one.

    spring.cloud.stream.bindings[my.orders].consumer.maxAttempts        a key
    spring  cloud  stream  bindings  my.orders  consumer  maxAttempts   its segments
    spring  cloud  stream  bindings  my.orders  consumer  maxattempts   their uniform forms

Two keys are the same when the uniform forms of their segments are. In the name of an environment variable
nothing tells where one segment ends and the next begins: `SPRING_CLOUD_STREAM_BINDINGS_INPUT_GROUP` is only
understood beside what is expected (`streamkit.config.shape`).
"""

import re
from typing import TypeAlias

Segments: TypeAlias = tuple[str, ...]

_SEGMENT = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)|(\.)")
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def parse_key(text: str) -> Segments:
    """The segments of a key; what stands in brackets is one segment, whatever it holds."""
    return tuple(bracketed or plain for bracketed, plain, _ in _SEGMENT.findall(text) if bracketed or plain)


def format_key(segments: Segments) -> str:
    """The key of these segments: indexes, and names that are not plain, in brackets."""
    text = ""
    for segment in segments:
        if segment.isdigit() or not _PLAIN.fullmatch(segment):
            text += f"[{segment}]"
        else:
            text += f".{segment}" if text else segment
    return text


def uniform(name: str) -> str:
    """The form in which equal names are equal."""
    return name.replace("-", "").replace("_", "").lower()


def uniform_key(text: str) -> Segments:
    """The uniform forms of the key's segments."""
    return tuple(uniform(segment) for segment in parse_key(text))


def kebab(name: str) -> str:
    """The name as the documentation spells it: `max-attempts` of `max_attempts` or `maxAttempts`."""
    return _CAMEL_HUMP.sub("-", name).replace("_", "-").lower()
