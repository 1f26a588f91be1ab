"""Typed settings read from Apache's own keys.

A settings class is a dataclass whose fields are made by `setting`: the Python name is the key in snake_case
(``autoCreateTopicEnable`` is ``auto_create_topic_enable``), the text of a file becomes the field's type, and
every value remembers where it came from. Every key of Apache's falls into one of three kinds: a field here is
*honoured*; a key listed as *meaningless* is accepted with a warning that says why it does nothing; a
*refused* key may only have the value that asks for nothing, because ignoring the other would break a promise
(access control, replication).
"""

import difflib
import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast, get_args, get_type_hints

from rocket_broker.errors import SettingError, UnknownSetting
from rocket_broker.properties_file import Entry, rewrite_properties

__all__ = ["DEFAULT_ORIGIN", "ApacheSettings", "Refused", "SettingRow", "setting"]

DEFAULT_ORIGIN = "default"

T = TypeVar("T")
Check = Callable[[Any], str | None]


class SettingRow(NamedTuple):
    """One line of the effective settings: what ``--print-config`` shows."""

    key: str
    value: str
    origin: str
    description: str


class Refused(NamedTuple):
    """A key that may only have the value asking for nothing."""

    harmless: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Declaration:
    description: str
    key: str
    minimum: int
    maximum: int | None
    check: Check | None
    fixed: bool


def setting(
    default: T,
    description: str,
    *,
    key: str = "",
    minimum: int = 0,
    maximum: int | None = None,
    check: Callable[[T], str | None] | None = None,
    fixed: bool = False,
) -> T:
    """Declare a field of a settings class.

    Args:
        default: The value when nothing sets it.
        description: What it does, in one sentence; the reference page is made from it.
        key: Apache's spelling, where it is not the field's name in camelCase.
        minimum: The least an int may be.
        maximum: The most an int may be.
        check: Returns what was expected when the value is wrong, None when it is right.
        fixed: Read once at start; a request to change it while running is refused.
    """
    declared = _Declaration(description, key, minimum, maximum, cast(Check | None, check), fixed)
    return field(default=default, metadata={"setting": declared})


def _declaration(f: "Field[Any]") -> _Declaration | None:
    return cast(_Declaration | None, f.metadata.get("setting"))


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@dataclass
class ApacheSettings:
    """Base of `BrokerSettings` and `NameServerSettings`."""

    meaningless: ClassVar[Mapping[str, str]] = {}
    refused: ClassVar[Mapping[str, Refused]] = {}
    told: ClassVar[Mapping[str, str]] = {}

    origins: dict[str, str] = field(default_factory=dict, kw_only=True)
    """Key -> where its value was set; keys at their default are missing."""
    warnings: list[str] = field(default_factory=list, kw_only=True)
    """What the settings asked for in vain, one sentence each."""
    source: Path | None = field(default=None, kw_only=True)
    """The settings file, which changes made while running are written to."""
    on_update: list[Callable[[Collection[str]], None]] = field(default_factory=list, kw_only=True)
    """Called with the keys that were changed while running."""

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Self:
        """Return the settings with the entries applied in order, the last one of a key winning.

        Raises:
            SettingError: A value is wrong, or the key is one this server cannot honour.
            UnknownSetting: No version of Apache RocketMQ has the key.
        """
        settings = cls()
        settings._set(settings._changes(entries, running=False))
        return settings

    def update(self, entries: Iterable[Entry]) -> None:
        """Change settings of a running server, and its file: all of them, or none and the error says why.

        Keys that mean nothing here are passed over.

        Raises:
            SettingError: A value is wrong, or is read at the start only.
            UnknownSetting: No version of Apache RocketMQ has the key.
            OSError: The file cannot be written.
        """
        entries = list(entries)
        told = len(self.warnings)
        try:
            changes = self._changes(entries, running=True)
        finally:
            # They are for the start: who asks again and again must not fill the memory.
            del self.warnings[told:]
        if self.source is not None:
            rewrite_properties(self.source, {entry.key: entry.value for entry in entries})
        self._set(changes)
        for tell in self.on_update:
            tell(changes.keys())

    def rows(self) -> list[SettingRow]:
        """Return every honoured setting with its value and where it came from, by key."""
        rows = [
            SettingRow(
                key, _text(getattr(self, f.name)), self.origins.get(key, DEFAULT_ORIGIN), d.description
            )
            for key, (f, d) in self._keys().items()
        ]
        return sorted(rows)

    @classmethod
    def changeable(cls) -> list[str]:
        """Return the keys that `update` may give another value."""
        return sorted(key for key, (_, declared) in cls._keys().items() if not declared.fixed)

    def to_properties(self) -> str:
        """Return the effective settings, and what is told beside them, as the text of a properties file."""
        values = {row.key: row.value for row in self.rows()} | dict(self.told)
        return "".join(f"{key}={value}\n" for key, value in values.items())

    @classmethod
    def _keys(cls) -> "dict[str, tuple[Field[Any], _Declaration]]":
        declared = ((f, _declaration(f)) for f in fields(cls))
        return {d.key or _camel(f.name): (f, d) for f, d in declared if d is not None}

    def _changes(self, entries: Iterable[Entry], *, running: bool) -> dict[str, tuple[str, object, str]]:
        """Return each key with its field, its new value and where that comes from."""
        honoured = self._keys()
        hints = get_type_hints(type(self))
        changes: dict[str, tuple[str, object, str]] = {}
        for entry in entries:
            key, text, origin = entry
            if key in honoured:
                f, declared = honoured[key]
                if running and declared.fixed and _text(getattr(self, f.name)) != text:
                    raise SettingError(key, text, origin, "is read at start only: restart with it")
                changes[key] = (f.name, _value(entry, hints[f.name], declared), origin)
            else:
                self._take_unhonoured(entry, honoured)
        return changes

    def _set(self, changes: Mapping[str, tuple[str, object, str]]) -> None:
        for key, (name, value, origin) in changes.items():
            setattr(self, name, value)
            self.origins[key] = origin

    def _take_unhonoured(self, entry: Entry, honoured: Iterable[str]) -> None:
        key, text, origin = entry
        if key in self.refused:
            rule = self.refused[key]
            if text.lower() not in rule.harmless.lower().split("|"):
                raise SettingError(
                    key, text, origin, f"{rule.reason}; expected {rule.harmless.split('|')[0]}"
                )
        elif key in self.meaningless:
            self.warnings.append(f"{origin}: {key} has no meaning here: {self.meaningless[key]}")
        else:
            known = {name.lower(): name for name in (*honoured, *self.refused, *self.meaningless)}
            near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.7)
            raise UnknownSetting(key, text, origin, known[near[0]] if near else None)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name
    return "" if value is None else str(value)


def _value(entry: Entry, type_: Any, declared: _Declaration) -> object:
    """Return the entry's text as the field's type.

    Raises:
        SettingError: It is no such value; says what was expected.
    """
    if isinstance(type_, UnionType):
        type_ = next(member for member in get_args(type_) if member is not NoneType)
    value = _converted(entry, type_, declared)
    expectation = declared.check(value) if declared.check is not None else None
    if expectation is not None:
        raise SettingError(*entry, f"expected {expectation}")
    return value


def _converted(entry: Entry, type_: type, declared: _Declaration) -> object:
    text = entry.value
    if type_ is bool:
        if text.lower() not in ("true", "false"):
            raise SettingError(*entry, "expected true or false")
        return text.lower() == "true"
    if type_ is int:
        return _integer(entry, declared)
    if issubclass(type_, enum.Enum):
        if text not in type_.__members__:
            raise SettingError(*entry, f"expected one of {', '.join(type_.__members__)}")
        return type_[text]
    if type_ is Path:
        if not text or "\0" in text:
            raise SettingError(*entry, "expected a path")
        return Path(text)
    return text


def _integer(entry: Entry, declared: _Declaration) -> int:
    high = declared.maximum
    expectation = f"expected a whole number from {declared.minimum}" + (
        f" to {high}" if high is not None else ""
    )
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", entry.value):
        raise SettingError(*entry, expectation)
    number = int(entry.value)
    if number < declared.minimum or (high is not None and number > high):
        raise SettingError(*entry, expectation)
    return number
