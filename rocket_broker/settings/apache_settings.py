"""Typed settings read from Apache's own keys.

A settings class is a dataclass whose fields are declared by `setting`. The Python name is the key in snake_case
(``autoCreateTopicEnable`` is ``auto_create_topic_enable``), the text of a file is converted to the field's type, and
each value keeps its origin. Every key of Apache's is of one of three kinds. A field here is *honoured*. A *meaningless*
key is accepted with a warning that says why it has no effect. A *refused* key may only have its harmless value, because
to ignore another value would break a promise (access control, replication).

Without access control every client that reaches a server may request changes (UPDATE_BROKER_CONFIG). So a
request changes an honoured setting only if it is neither *fixed* (read once, at the start) nor *local* (the change
could delete messages or lift a limit). A request never writes a key of the other two kinds into the settings file.
"""

import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast, get_args

from rocket_broker.errors import LocalSetting, SettingError, UnknownSetting
from rocket_broker.settings.properties_file import Entry, parse_properties, read_text, replace_text, rewritten

__all__ = ["DEFAULT_ORIGIN", "ApacheSettings", "Refused", "SettingRow", "setting"]

DEFAULT_ORIGIN = "default"
SECRET = "******"
"""What is shown instead of a secret."""

T = TypeVar("T")
Check = Callable[[Any], str | None]


class SettingRow(NamedTuple):
    """A line of the effective settings, as ``--print-config`` shows it."""

    key: str
    value: str
    origin: str
    description: str


class Refused(NamedTuple):
    """A key that may only have its harmless value; the reason is for the error."""

    harmless: str
    reason: str


class _Declaration(NamedTuple):
    description: str
    key: str
    minimum: int
    maximum: int | None
    check: Check | None
    fixed: bool
    local: str
    secret: bool


def setting(
    default: T,
    description: str,
    *,
    key: str = "",
    minimum: int = 0,
    maximum: int | None = None,
    check: Callable[[T], str | None] | None = None,
    fixed: bool = False,
    local: str = "",
    secret: bool = False,
) -> T:
    """Declare a field of a settings class.

    Args:
        default: The value if nothing sets it.
        description: The effect of the setting in one sentence; the reference page is generated from it.
        key: Apache's spelling, if it is not the field's name in camelCase.
        minimum: Minimum of an int.
        maximum: Maximum of an int.
        check: Returns what was expected if the value is wrong, and None if it is right.
        fixed: Whether the setting is read only at the start; a request to change it is refused.
        local: The reason why only the settings file may change it and no request; empty if requests may.
        secret: Whether the value is shown nowhere: not in reports, answers and errors. Requests cannot change it.
    """
    declared = _Declaration(description, key, minimum, maximum, cast(Check | None, check), fixed, local, secret)
    return field(default=default, repr=not secret, metadata={"setting": declared})


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@dataclass(init=False, repr=False, eq=False)
class ApacheSettings:
    """Base class of `BrokerSettings` and `NameServerSettings`.

    The methods that `dataclass` would generate for hundreds of fields would take a twentieth of the CPU of a start.
    """

    meaningless: ClassVar[Mapping[str, str]] = {}
    refused: ClassVar[Mapping[str, Refused]] = {}
    reported: ClassVar[Mapping[str, str]] = {}

    origins: dict[str, str] = field(default_factory=dict, kw_only=True)
    """The origin of each key's value; keys with their default value are missing."""
    warnings: list[str] = field(default_factory=list, kw_only=True)
    """A sentence for each entry that has no effect."""
    source: Path | None = field(default=None, kw_only=True)
    """The settings file, which `update` writes changes to."""
    on_update: list[Callable[[Collection[str]], None]] = field(default_factory=list, kw_only=True)
    """Called with the keys that `update` has changed."""

    def __init__(self, **values: object) -> None:
        """Make settings with their defaults, but for the given values."""
        self.origins, self.warnings, self.source, self.on_update = {}, [], None, []
        for name, value in values.items():
            if name not in self.__dataclass_fields__:
                raise TypeError(f"{type(self).__name__} has no setting {name}")
            setattr(self, name, value)

    def __repr__(self) -> str:
        given = (f"{row.key}={row.value}" for row in self.rows() if row.key in self.origins)
        return f"{type(self).__name__}({', '.join(given)})"

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Self:
        """Return the settings with the entries applied in order; the last entry of a key wins.

        Raises:
            SettingError: A value is wrong, or the server refuses the key.
            UnknownSetting: No version of Apache RocketMQ has the key.
        """
        settings = cls()
        honoured = _honoured(cls)
        settings._set({entry.key: change for entry in entries if (change := settings._given(entry, honoured))})
        return settings

    def update(self, entries: Iterable[Entry]) -> None:
        """Change settings of a running server and of its file by request: all of them, or none.

        A key that has the value already is not a change, whatever its kind, and is not written.

        Raises:
            SettingError: A value is wrong, or the setting is read at the start only.
            LocalSetting: Requests may not change the key, or the key has no effect here.
            UnknownSetting: No version of Apache RocketMQ has the key.
            BrokerError: The next start could not read the file with the changes.
            OSError: The file cannot be written.
        """
        changes: dict[str, _Change] = {}
        honoured = _honoured(type(self))
        for entry in entries:
            change = self._requested(entry, honoured)
            if change is not None:
                changes[entry.key] = change
        if not changes:
            return
        if self.source is not None:
            self._write(self.source, {key: change.entry.value for key, change in changes.items()})
        self._set(changes)
        for tell in self.on_update:
            tell(changes.keys())

    def rows(self) -> list[SettingRow]:
        """Return every honoured setting with its value and its origin, sorted by key; a password's value is hidden."""
        rows = [
            SettingRow(
                key,
                f.text(getattr(self, f.name)),
                self.origins.get(key, DEFAULT_ORIGIN),
                f.declared.description,
            )
            for key, f in _honoured(type(self)).items()
        ]
        return sorted(rows)

    @classmethod
    def changeable(cls) -> list[str]:
        """Return the keys whose values `update` may change."""
        return sorted(key for key, f in _honoured(cls).items() if not (f.declared.fixed or f.declared.local))

    @classmethod
    def secrets(cls) -> frozenset[str]:
        """Return the keys whose values are hidden."""
        return frozenset(key for key, f in _honoured(cls).items() if f.declared.secret)

    @classmethod
    def local(cls) -> list[str]:
        """Return the keys that only the settings file may change, although the server could apply a change at once."""
        return sorted(key for key, f in _honoured(cls).items() if f.declared.local and not f.declared.fixed)

    def to_properties(self) -> str:
        """Return the effective settings but passwords, and the reported keys, as the text of a properties file."""
        secrets = self.secrets()
        values = {row.key: row.value for row in self.rows() if row.key not in secrets} | dict(self.reported)
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def _given(self, entry: Entry, honoured: "Mapping[str, _Field]") -> "_Change | None":
        """Return the change that an entry makes; None, perhaps with a warning, if its key is not honoured."""
        field_ = honoured.get(entry.key)
        if field_ is not None:
            return field_.change(entry)
        if entry.key in self.refused:
            self._expect_harmless(entry)
        elif entry.key in self.meaningless:
            reason = self.meaningless[entry.key]
            self.warnings.append(f"{entry.origin}: {entry.key} has no effect: {reason}")
        else:
            raise self._unknown(entry)
        return None

    def _requested(self, entry: Entry, honoured: "Mapping[str, _Field]") -> "_Change | None":
        """Return the change that an entry of a request makes; None if the setting has the value already."""
        field_ = honoured.get(entry.key)
        if field_ is not None:
            declared = field_.declared
            if declared.secret:
                if entry.value == SECRET:  # a tool sends back what it has read
                    return None
                # Not even whether the value is the present one is said.
                raise LocalSetting(entry.key, SECRET, entry.origin, self._locally("it is a secret"))
            change = field_.change(entry)
            if not (declared.fixed or declared.local):
                return change
            if change.value == getattr(self, field_.name):
                return None
            if declared.local:
                raise LocalSetting(*entry, self._locally(declared.local))
            raise SettingError(*entry, "is read at the start only: restart the server to change it")
        if entry.key in self.refused:
            self._expect_harmless(entry)
            return None
        if entry.key in self.meaningless:
            raise LocalSetting(*entry, f"has no effect here and is not written: {self.meaningless[entry.key]}")
        raise self._unknown(entry)

    def _locally(self, reason: str) -> str:
        place = "the server's settings" if self.source is None else str(self.source)
        return f"requests cannot change it, as {reason}; change it in {place} and restart"

    def _expect_harmless(self, entry: Entry) -> None:
        rule = self.refused[entry.key]
        if entry.value.lower() not in rule.harmless.lower().split("|"):
            raise SettingError(*entry, f"{rule.reason}; expected {rule.harmless.split('|')[0]}")

    def _unknown(self, entry: Entry) -> UnknownSetting:
        import difflib

        known = {name.lower(): name for name in (*_honoured(type(self)), *self.refused, *self.meaningless)}
        near = difflib.get_close_matches(entry.key.lower(), known, n=1, cutoff=0.7)
        return UnknownSetting(*entry, known[near[0]] if near else None)

    def _write(self, source: Path, changes: Mapping[str, str]) -> None:
        """Write changes into the settings file, once it is checked that the next start can read the result."""
        text = rewritten(read_text(source) if source.exists() else "", changes)
        self.from_entries(parse_properties(text, str(source)))
        replace_text(source, text)

    def _set(self, changes: "Mapping[str, _Change]") -> None:
        for key, change in changes.items():
            setattr(self, change.name, change.value)
            self.origins[key] = change.entry.origin


class _Change(NamedTuple):
    """A new value of a field."""

    name: str
    value: object
    entry: Entry


class _Field(NamedTuple):
    """A field that is a setting: its name, its type without None, and its declaration."""

    name: str
    type_: Any
    declared: _Declaration

    def text(self, value: object) -> str:
        """Return a value of the field as text; a password is hidden."""
        return SECRET if self.declared.secret and value else _text(value)

    def shown(self, entry: Entry) -> Entry:
        """Return an entry of this field as errors may show it."""
        return entry._replace(value=SECRET) if self.declared.secret else entry

    def change(self, entry: Entry) -> _Change:
        """Return the change of this field that an entry makes.

        Raises:
            SettingError: The entry's text is not a value of this field.
        """
        value = _converted(entry, self.type_, self.declared)
        expectation = self.declared.check(value) if self.declared.check is not None else None
        if expectation is not None:
            raise SettingError(*self.shown(entry), f"expected {expectation}")
        return _Change(self.name, value, entry)


_fields_by_class: dict[type[ApacheSettings], Mapping[str, _Field]] = {}


def _honoured(settings: type[ApacheSettings]) -> Mapping[str, _Field]:
    """Return the fields of a settings class by their keys; made once, since a start reads them several times."""
    if settings not in _fields_by_class:
        found = [_Field(f.name, _without_none(f.type), f.metadata["setting"]) for f in fields(settings) if f.metadata]
        _fields_by_class[settings] = {f.declared.key or _camel(f.name): f for f in found}
    return _fields_by_class[settings]


def _without_none(type_: Any) -> Any:
    if isinstance(type_, UnionType):
        return next(member for member in get_args(type_) if member is not NoneType)
    return type_


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name
    return "" if value is None else str(value)


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
    expectation = f"expected a whole number from {declared.minimum}" + (f" to {high}" if high is not None else "")
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", entry.value):
        raise SettingError(*entry, expectation)
    number = int(entry.value)
    if number < declared.minimum or (high is not None and number > high):
        raise SettingError(*entry, expectation)
    return number
