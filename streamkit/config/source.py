"""Property sources: each has the settings of one place and finds them by relaxed names."""

import json
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import msgspec

from streamkit.config.origin import Origin, Scalar, Value
from streamkit.config.relaxed import Segments, format_key, parse_key, uniform, uniform_key
from streamkit.errors import ConfigurationError

_RANDOM: Final = re.compile(r"random\.(uuid|value|int|long)(\(\s*\d+\s*\)|[([]\s*-?\d+\s*,\s*-?\d+\s*[)\]])?")


class Entry(msgspec.Struct, frozen=True):
    """A setting of a source, below a prefix.

    Attributes:
        segments: The segments of the key, below the prefix.
        value: The value.
        loose: Whether the segments are words of an environment variable's name, of which several may make one segment.
    """

    segments: Segments
    value: Value
    loose: bool = False


class PropertySource(Protocol):
    """Settings from one place."""

    name: str

    def get(self, key: str) -> Value | None:
        """Return the value of `key`; None if this source does not set it."""
        ...

    def entries(self, prefix: Segments = ()) -> Iterator[Entry]:
        """Yield the settings below the key with these uniform segments."""
        ...


class KeyedSource:
    """A source with full keys: a document of a file, arguments, or a table in code."""

    def __init__(self, name: str, values: Mapping[Segments, Value]) -> None:
        self.name = name
        self._values = {tuple(map(uniform, segments)): (segments, value) for segments, value in values.items()}

    def get(self, key: str) -> Value | None:
        """Return the value of `key`; None if this source does not set it."""
        found = self._values.get(tuple(map(uniform, parse_key(key))))
        return None if found is None else found[1]

    def entries(self, prefix: Segments = ()) -> Iterator[Entry]:
        """Yield the settings below the key with these uniform segments."""
        length = len(prefix)
        for uniform_segments, (segments, value) in self._values.items():
            if uniform_segments[:length] == prefix and len(segments) > length:
                yield Entry(segments[length:], value)

    def __repr__(self) -> str:
        return f"KeyedSource({self.name!r}, {len(self._values)} settings)"


class EnvironmentVariables:
    """Settings in environment variables: `SPRING_CLOUD_STREAM_BINDINGS_INPUT_GROUP`.

    A variable name with dots, which container platforms allow, is a key as in a file.
    """

    name = "environment variables"

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._values = {
            name: Value(value, Origin(f"environment variable {name}"), name) for name, value in variables.items()
        }
        self._by_letters: dict[str, list[str]] = {}
        self._letters = {name: _letters(name) for name in variables}
        for name, letters in self._letters.items():
            self._by_letters.setdefault(letters, []).append(name)

    def get(self, key: str) -> Value | None:
        """Return the value of `key`, a setting's key or the name of a variable; None if no variable sets it."""
        if key in self._values:
            return self._values[key]
        segments = uniform_key(key)
        for name in self._by_letters.get(_letters(key), ()):
            if uniform_key(name) == segments or _without_prefix(_words(name), segments) == ():
                return self._values[name]
        return None

    def entries(self, prefix: Segments = ()) -> Iterator[Entry]:
        """Yield the variables whose names begin with the prefix.

        The entries have the remaining words of the name as loose segments, or segments if the name has dots.
        """
        wanted = "".join(map(_letters, prefix))
        for name, value in self._values.items():
            if "." in name:
                segments = parse_key(name)
                if tuple(map(uniform, segments[: len(prefix)])) == prefix and len(segments) > len(prefix):
                    yield Entry(segments[len(prefix) :], value)
                continue
            # Most variables are not settings, and an application asks for a hundred prefixes when it starts.
            rest = _without_prefix(_words(name), prefix) if self._letters[name].startswith(wanted) else None
            if rest:
                yield Entry(rest, value, loose=True)

    def only(self, names: Container[str]) -> "EnvironmentVariables":
        """Return a source of the variables with these names and of all that begin with `SPRING_` or `SPRING.`."""
        return EnvironmentVariables(
            {
                name: str(value.value)
                for name, value in self._values.items()
                if name in names or name.upper().startswith(("SPRING_", "SPRING."))
            }
        )

    def __repr__(self) -> str:
        return f"EnvironmentVariables({len(self._values)} variables)"


class RandomSource:
    """Random values, new at each read: `random.int`, `random.int(10)`, `random.long[1,100]`, `random.uuid`, …"""

    name = "random values"

    def get(self, key: str) -> Value | None:
        """Return a random value for a key below `random.`; None for other keys and for empty ranges."""
        known = _RANDOM.fullmatch(key.strip())
        if known is None:
            return None
        value = _random(known[1], known[2])
        return None if value is None else Value(value, Origin("random value"), key)

    def entries(self, prefix: Segments = ()) -> Iterator[Entry]:
        """Return no entries: random values exist only when `get` asks for them."""
        return iter(())

    def __repr__(self) -> str:
        return "RandomSource()"


def _random(kind: str, range_: str | None) -> str | None:
    import secrets  # few settings need it

    if kind == "uuid":
        return str(uuid4())
    if kind == "value":
        return secrets.token_hex(16)
    bits = 31 if kind == "int" else 63
    bounds = [int(bound) for bound in (range_ or "")[1:-1].split(",") if bound.strip()]
    low, high = (0, *bounds)[-2:] if bounds else (-(1 << bits), 1 << bits)
    return str(low + secrets.randbelow(high - low)) if low < high else None


class SystemProperties:
    """The properties of Java's system that settings refer to: `user.home`, `java.io.tmpdir`, `PID`, …"""

    name = "system properties"

    def get(self, key: str) -> Value | None:
        """Return the value of a property; None for other keys."""
        read = _SYSTEM.get(key.strip())
        return None if read is None else Value(read(), Origin("system property"), key)

    def entries(self, prefix: Segments = ()) -> Iterator[Entry]:
        """Return no entries: these are not settings of applications."""
        return iter(())

    def __repr__(self) -> str:
        return "SystemProperties()"


def _temporary_directory() -> str:
    import tempfile  # it takes 10 ms to import, and few settings need it

    return tempfile.gettempdir()


def _user_name() -> str:
    import getpass

    return getpass.getuser()


_SYSTEM: Final[Mapping[str, Callable[[], str]]] = {
    "PID": lambda: str(os.getpid()),
    "file.separator": lambda: os.sep,
    "java.io.tmpdir": _temporary_directory,
    "path.separator": lambda: os.pathsep,
    "user.dir": os.getcwd,
    "user.home": lambda: str(Path.home()),
    "user.name": _user_name,
}


class SubtreeSource:
    """The settings of a source below a prefix, as a source of its own: the `environment` of a binder."""

    def __init__(self, source: PropertySource, prefix: Segments) -> None:
        self.name = f"{source.name}, below {format_key(prefix)}"
        self._source = source
        self._prefix = prefix

    def get(self, key: str) -> Value | None:
        """Return the value of `key` below the prefix; None if the source does not set it."""
        return self._source.get(format_key((*self._prefix, *parse_key(key))))

    def entries(self, prefix: Segments = ()) -> Iterator[Entry]:
        """Yield the settings below the key with these uniform segments, itself below the prefix of this source."""
        return self._source.entries((*self._prefix, *prefix))


class FilteredSource:
    """The settings of a source without some of them."""

    def __init__(self, source: PropertySource, left_out: Container[tuple[str, str]]) -> None:
        """Make a source.

        Args:
            source: The source.
            left_out: The places and keys of the settings that this source does not have.
        """
        self.name = source.name
        self._source = source
        self._left_out = left_out

    def get(self, key: str) -> Value | None:
        """Return the value of `key`; None if the source does not set it, or if it is left out."""
        found = self._source.get(key)
        return None if found is None or (str(found.origin), found.key) in self._left_out else found

    def entries(self, prefix: Segments = ()) -> Iterator[Entry]:
        """Yield the settings below the key with these uniform segments."""
        for entry in self._source.entries(prefix):
            if (str(entry.value.origin), entry.value.key) not in self._left_out:
                yield entry


def _without_prefix(words: Segments, prefix: Segments) -> Segments | None:
    """Return the words behind the prefix, each segment of which is one or more words; None if they do not match."""
    position = 0
    for segment in prefix:
        taken = ""
        wanted = _letters(segment)
        while len(taken) < len(wanted) and position < len(words):
            taken += words[position]
            position += 1
        if taken != wanted:
            return None
    return words[position:]


def _words(name: str) -> Segments:
    return tuple(word for word in name.lower().split("_") if word)


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def table_source(name: str, table: Mapping[str, Scalar], place: str) -> KeyedSource:
    """Return a source of settings from code.

    Args:
        name: The name of the source.
        table: The values by key.
        place: The name of the table in errors.
    """
    origin = Origin(place)
    return KeyedSource(name, {parse_key(key): Value(value, origin, key) for key, value in table.items()})


def arguments_source(arguments: Sequence[str]) -> KeyedSource:
    """Return a source of the arguments `--key=value`; `--key` alone means true, other arguments are ignored."""
    values = {}
    for argument in arguments:
        key, equals, text = argument.removeprefix("--").partition("=")
        if argument.startswith("--") and key:
            value = Value(text if equals else "true", Origin(f"argument --{key}"), key)
            values[parse_key(key)] = value
    return KeyedSource("arguments", values)


def json_source(text: str, origin: Origin) -> KeyedSource:
    """Return a source of the settings in a JSON object, such as SPRING_APPLICATION_JSON.

    Args:
        text: The JSON text.
        origin: The place of the text.

    Raises:
        ConfigurationError: The text is not a JSON object. The error does not repeat the text, which may hold secrets.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{origin}: not valid JSON: {error}", origin=str(origin)) from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{origin}: expected a JSON object", origin=str(origin))
    leaves = {segments: Value(value, origin, format_key(segments)) for segments, value in _leaves(document, ())}
    return KeyedSource(str(origin), leaves)


def _leaves(node: object, path: Segments) -> Iterator[tuple[Segments, Scalar]]:
    match node:
        case dict() if node:
            for key, child in node.items():
                yield from _leaves(child, (*path, *parse_key(key)))
        case list() if node:
            for index, child in enumerate(node):
                yield from _leaves(child, (*path, str(index)))
        case dict() | list():
            yield path, ""
        case str() | int() | float() | bool() | None:
            yield path, node
