"""Find and read the settings files, in Spring Boot's order.

From the weakest to the strongest:

1. `bootstrap.yml`, then `bootstrap.properties`, with the variants of the active profiles, as Spring Cloud reads them;
2. `application.yml`, then `application.properties`, in the directory, then in its `config/`, then in each directory
   there, by their names;
3. for each active profile: `application-<profile>.yml`, then `application-<profile>.properties`, in the same places.

`spring.config.location` names other places. A comma separates groups of places: each group has this order, and a later
group is stronger than an earlier one, whatever profiles its files are for. A semicolon separates the places of a group.

Profiles are active in this order: those of `spring.profiles.include`, then those of `spring.profiles.active`, each
before the members of its group.

A later document of a file is stronger than an earlier one. A document with `spring.config.activate.on-profile` is used
only if its profile expression is true. The documents that a document imports (`streamkit.config.imports`) are stronger
than the document itself, and weaker than the documents after it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from streamkit.config import profiles
from streamkit.config.document import Document
from streamkit.config.imports import Import, directories_of, imported_by, read_tree_of_files
from streamkit.config.located_errors import located
from streamkit.config.origin import Value
from streamkit.config.placeholders import Lookup, resolve
from streamkit.config.profiles import expanded
from streamkit.config.properties_file import read_properties
from streamkit.config.relaxed import uniform, uniform_key
from streamkit.config.source import KeyedSource
from streamkit.config.verdict import SettingWarning, Verdict
from streamkit.errors import ConfigurationError

_SUFFIXES = (".yaml", ".yml", ".properties")
_BOOTSTRAP = "bootstrap"
_ON_PROFILE = ("spring", "config", "activate", "onprofile")
_ON_CLOUD_PLATFORM = ("spring", "config", "activate", "oncloudplatform")
# The key of a document's profile condition before Spring Boot 2.4.
_OLD_ON_PROFILE = ("spring", "profiles")
_ACTIVE = ("spring", "profiles", "active")
_INCLUDE = ("spring", "profiles", "include")
_DEFAULT = ("spring", "profiles", "default")
_GROUP = ("spring", "profiles", "group")
_PROFILE = re.compile(r"[^&|!(),\s]+")


class Location(msgspec.Struct, frozen=True):
    """A directory that is searched for settings files, or one settings file.

    Attributes:
        path: The directory or file; `*` as its last part stands for each directory there.
        optional: Whether the directory or file may be missing.
    """

    path: Path
    optional: bool = False

    def directories(self) -> list[Path]:
        """Return the directories that are meant and exist, sorted; empty if the location is not a directory."""
        return directories_of(self.path)

    @classmethod
    def parse(cls, text: str, directory: Path) -> "list[LocationGroup]":
        """Return the groups in a comma-separated list.

        A group is a list of paths separated by semicolons, each with or without a leading `optional:`.
        """
        groups = ([cls._of(part, directory) for part in _parts(group, ";")] for group in _parts(text, ","))
        return [group for group in groups if group]

    @classmethod
    def _of(cls, text: str, directory: Path) -> "Location":
        optional = text.startswith("optional:")
        path = text.removeprefix("optional:").removeprefix("file:").removeprefix("classpath:/")
        return cls(directory / path.removeprefix("classpath:"), optional)

    @classmethod
    def standard(cls, directory: Path) -> "LocationGroup":
        """Return the default locations: the directory, its `config/` and the directories there, all optional."""
        return [cls(directory / place, optional=True) for place in (".", "config", "config/*")]


LocationGroup: TypeAlias = Sequence[Location]
"""Locations, the weakest first, whose files of active profiles are stronger than all their other files."""


def _parts(text: str, separator: str) -> Iterator[str]:
    return filter(None, map(str.strip, text.split(separator)))


class SettingsFiles(msgspec.Struct, frozen=True):
    """The files that settings were read from.

    Attributes:
        read: The files of which at least one document is used, the weakest first.
        searched: The directories and files that were searched.
    """

    read: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.read:
            return f"settings from {', '.join(self.read)}"
        return f"no settings file found in {', '.join(self.searched)}" if self.searched else "no settings files"


NO_FILES: Final = SettingsFiles()


class LoadedFiles(msgspec.Struct, frozen=True):
    """The settings of all files.

    Attributes:
        sources: A source for each document that is used, the weakest first.
        active_profiles: The active profiles, in their order.
        files: The files.
        warnings: Imports of kinds that are not supported, and keys that one document sets twice.
        unused_profiles: What to say of each active profile to which no file and no document belongs.
    """

    sources: tuple[KeyedSource, ...]
    active_profiles: tuple[str, ...]
    files: SettingsFiles = NO_FILES
    warnings: tuple[SettingWarning, ...] = ()
    unused_profiles: tuple[str, ...] = ()


class _Found(msgspec.Struct, frozen=True):
    """A document, its file, and the name of that file in errors (`where`)."""

    path: Path
    where: str
    document: Document


def load_files(
    groups: Sequence[LocationGroup],
    directory: Path,
    name: str = "application",
    lookup: Lookup = lambda key: None,
) -> LoadedFiles:
    """Read all settings files.

    Args:
        groups: The directories and files to read, the weakest first.
        directory: The directory to which file names in errors are relative.
        name: The name of the files, without profile and suffix.
        lookup: Returns settings of sources that are stronger than files, such as the active profiles.

    Raises:
        ConfigurationError: A location or an import that is not optional is missing, a file cannot be read or is
            malformed, or the settings of a profile say which profiles are active.
    """
    reader = _Reader(directory)
    locations = [location for group in groups for location in group]
    names = [_BOOTSTRAP, name]
    general: list[_Found] = []
    for found in (found for each in names for found in _files(reader, locations, each) if _is_for_here(found, lookup)):
        # Imported files may set the active profiles, so they are read once before the profiles are known.
        imported = _Imports(reader, lookup).of(found, ()) if _condition(found) is None else []
        general += [found, *imported]
    active = _active_profiles(general, lookup)
    # Not those above: they were asked without profiles, and would skip the files that they have followed.
    imports = _Imports(reader, lookup)
    counting: list[_Found] = []
    of_profiles: set[str] = set()
    for each, group, profile in product(names, groups, (None, *active)):
        files = list(_files(reader, group, each, profile))
        if profile is not None and files:
            of_profiles.add(profile)
        for found in files if profile is None else _of_profile(files):
            if _counts(found, active, lookup):
                counting += [found, *imports.of(found, active)]
    used = {*of_profiles, *imports.profiles, *_named_by_conditions([*general, *counting])}
    known = {*used, *_profiles_with_files(locations, name)}
    return LoadedFiles(
        tuple(KeyedSource(found.where, found.document.entries) for found in counting),
        active,
        SettingsFiles(
            tuple(dict.fromkeys(found.where for found in counting)), tuple(str(each.path) for each in locations)
        ),
        (*imports.warnings, *map(_set_twice, (each for found in counting for each in found.document.replaced))),
        tuple(
            _nothing_belongs_to(profile, name, known)
            for profile in active
            if profile not in used and profile != "default" and not _group_of(profile, general, lookup)
        ),
    )


def _named_by_conditions(documents: Iterable[_Found]) -> Iterator[str]:
    """Yield the profiles that conditions of documents name."""
    for found in documents:
        yield from _PROFILE.findall(_condition(found) or "")


def _profiles_with_files(locations: Iterable[Location], name: str) -> Iterator[str]:
    """Yield the profiles that have a file in a directory that is searched."""
    for location in locations:
        for directory in location.directories():
            for path in directory.glob(f"{name}-*"):
                if path.suffix in _SUFFIXES:
                    yield path.stem.removeprefix(f"{name}-")


def _nothing_belongs_to(profile: str, name: str, known: Iterable[str]) -> str:
    near = get_close_matches(profile, sorted(known), n=1, cutoff=0.5)
    return (
        f"No settings belong to the active profile {profile!r}: there is no file {name}-{profile}.yml or "
        f"{name}-{profile}.properties, and no document names it" + (f"; did you mean {near[0]!r}?" if near else "")
    )


def _set_twice(values: tuple[Value, Value]) -> SettingWarning:
    replaced, winner = values
    return SettingWarning(replaced, f"{winner.origin} sets it again", Verdict.OVERRIDDEN)


def _files(reader: "_Reader", locations: Sequence[Location], name: str, profile: str | None = None) -> Iterator[_Found]:
    """Yield the documents of the files with a name and a profile, the weakest first."""
    full = name if profile is None else f"{name}-{profile}"
    for location in locations:
        directories = location.directories()
        for directory in directories:
            yield from reader.directory_files(directory, full)
        if directories:
            continue
        if location.path.is_file():
            path = location.path if profile is None else location.path.with_stem(f"{location.path.stem}-{profile}")
            if name != _BOOTSTRAP and path.is_file():
                yield from reader.file(path, path.suffix)
        elif not location.optional:
            raise ConfigurationError(
                f"there is no settings file or directory {str(location.path)!r}; "
                "write `optional:` before it if it may be missing"
            )


class _Reader:
    """Reads settings files, each file once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.file: Callable[[Path, str], Sequence[_Found]] = cache(self._read)

    def directory_files(self, directory: Path, name: str) -> Iterator[_Found]:
        """Yield the documents of a directory's files with a name, for each known suffix."""
        for suffix in _SUFFIXES:
            path = directory / f"{name}{suffix}"
            if path.is_file():
                yield from self.file(path, suffix)

    def key_tree(self, directory: Path) -> _Found:
        """Return a document with a setting for each file below a directory."""
        where = self._shown(directory)
        return _Found(directory, where, read_tree_of_files(directory, where))

    def _read(self, path: Path, suffix: str) -> Sequence[_Found]:
        where = self._shown(path)
        if suffix == ".properties":
            read = read_properties
        else:  # most applications have no YAML, which is slow to import
            from streamkit.config.yaml_file import read_yaml as read
        try:
            return [_Found(path, where, document) for document in read(path, where)]
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{where}: it is not UTF-8, as a YAML file must be: byte {error.object[error.start]:#04x} at position "
                f"{error.start}",
                origin=where,
            ) from error
        except OSError as error:
            raise ConfigurationError(f"{where}: it cannot be read: {error.strerror}", origin=where) from error

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._directory) if path.is_relative_to(self._directory) else path)


class _Imports:
    """Follows imports. A file that is imported twice is read at its first import only, as in Spring Boot.

    Attributes:
        warnings: Imports of kinds that are not supported.
        profiles: The profiles that have a file beside an imported one.
    """

    def __init__(self, reader: _Reader, lookup: Lookup) -> None:
        self.warnings: list[SettingWarning] = []
        self.profiles: set[str] = set()
        self._reader = reader
        self._lookup = lookup
        self._followed: set[Path] = set()

    def of(self, found: _Found, active: Sequence[str]) -> list[_Found]:
        """Return the documents that a document imports, directly or through others, the weakest first."""
        documents: list[_Found] = []
        for each in imported_by(found.document, found.path.parent, self._lookup):
            if isinstance(each, SettingWarning):
                self.warnings.append(each)
            elif each.path not in self._followed:
                self._followed.add(each.path)
                for document in self._documents(each, active):
                    if _counts(document, active, self._lookup):
                        documents += [document, *self.of(document, active)]
        return documents

    def _documents(self, each: Import, active: Sequence[str]) -> Iterator[_Found]:
        if each.is_tree:
            if each.path.is_dir():
                yield self._reader.key_tree(each.path)
            return
        if each.path.is_dir():
            yield from self._reader.directory_files(each.path, "application")
            for profile in active:
                yield from self._of_profile(profile, self._reader.directory_files(each.path, f"application-{profile}"))
            return
        yield from self._reader.file(each.path, each.suffix)
        for profile in active:
            path = each.path.with_stem(f"{each.path.stem}-{profile}")
            if path.is_file():
                yield from self._of_profile(profile, self._reader.file(path, each.suffix))

    def _of_profile(self, profile: str, documents: Iterable[_Found]) -> Iterator[_Found]:
        for found in _of_profile(documents):
            self.profiles.add(profile)
            yield found


def _condition(found: _Found) -> str | None:
    """Return the profile expression on which a document depends; None if it names no profile."""
    condition = found.document.find(*_ON_PROFILE)
    if condition is not None:
        return str(condition)
    listed = found.document.find_list(*_ON_PROFILE) or found.document.find_list(*_OLD_ON_PROFILE)
    return ",".join(listed) if listed else None


def _is_for_here(found: _Found, lookup: Lookup) -> bool:
    """Return whether a document is meant for the cloud platform of this process, or for no platform."""
    platform = found.document.find(*_ON_CLOUD_PLATFORM)
    return platform is None or uniform(str(platform)) == uniform(_cloud_platform(lookup))


def _counts(found: _Found, active_profiles: Sequence[str], lookup: Lookup) -> bool:
    if not _is_for_here(found, lookup):
        return False
    condition = _condition(found)
    if condition is None:
        return True
    try:
        return profiles.matches(condition, active_profiles)
    except ValueError as error:
        value = found.document.find(*_ON_PROFILE) or found.document.find(*_OLD_ON_PROFILE)
        origin = str(value.origin) if value is not None else found.where
        raise ConfigurationError(f"{origin}: {error}", origin=origin) from error


def _cloud_platform(lookup: Lookup) -> str:
    named = lookup("spring.main.cloud-platform")
    if named is not None:
        return named
    return "none" if lookup("KUBERNETES_SERVICE_HOST") is None else "kubernetes"


def _active_profiles(general: Sequence[_Found], lookup: Lookup) -> tuple[str, ...]:
    """Return the active profiles in their order.

    Args:
        general: The documents of the files that belong to no profile, the weakest first.
        lookup: Returns settings that are stronger than files.
    """
    listed = _listed(general, lookup, _ACTIVE)
    included = _included(general, lookup)
    defaults = _listed(general, lookup, _DEFAULT) or ["default"]
    return tuple(expanded([*included, *listed] or defaults, lambda profile: _group_of(profile, general, lookup)))


def _group_of(profile: str, general: Sequence[_Found], lookup: Lookup) -> list[str]:
    """Return the profiles that a profile stands for."""
    unconditional = [each for each in general if _condition(each) is None]
    return _listed(unconditional, lookup, (*_GROUP, uniform(profile)))


def _listed(documents: Sequence[_Found], lookup: Lookup, key: tuple[str, ...]) -> list[str]:
    """Return the profiles that a setting lists.

    A source that is stronger than files wins. Otherwise the last document that has the setting wins.

    Raises:
        ConfigurationError: That document depends on a profile.
    """
    strong = lookup(".".join(key))
    if strong is not None:
        return _split(strong)
    for each in reversed(documents):
        values = each.document.find_values(*key)
        if values:
            _refuse_in_condition(each, values[0])
            return _profiles_in(values, documents, lookup)
    return []


def _included(documents: Sequence[_Found], lookup: Lookup) -> list[str]:
    """Return the profiles that are included: those of all sources, as in Spring Boot, the strongest source first.

    Raises:
        ConfigurationError: A document that depends on a profile includes others.
    """
    found = _split(lookup(".".join(_INCLUDE)) or "")
    for each in reversed(documents):
        values = each.document.find_values(*_INCLUDE)
        if values:
            _refuse_in_condition(each, values[0])
            found += _profiles_in(values, documents, lookup)
    return found


def _refuse_in_condition(found: _Found, value: Value) -> None:
    if _condition(found) is not None:
        raise _misplaced(value, "a document that depends on a profile")


def _of_profile(documents: Iterable[_Found]) -> Iterator[_Found]:
    """Yield the documents of a profile's file.

    Raises:
        ConfigurationError: One of them says which profiles are active.
    """
    for found in documents:
        for key in (_ACTIVE, _INCLUDE, _DEFAULT):
            values = found.document.find_values(*key)
            if values:
                raise _misplaced(values[0], "the file of a profile")
        yield found


def _misplaced(value: Value, where: str) -> ConfigurationError:
    """Return the error for a setting that says which profiles are active where the active profiles must be known."""
    return located(
        value,
        f"{where} cannot say which profiles are active: set it in a document without conditions, or let "
        "spring.profiles.group.<profile> list the profiles that belong to one",
    )


def _profiles_in(values: Sequence[Value], documents: Sequence[_Found], lookup: Lookup) -> list[str]:
    return [item for value in values for item in _split(_resolved(value, documents, lookup))]


def _resolved(value: Value, documents: Sequence[_Found], lookup: Lookup) -> str:
    """Return a value's text without placeholders.

    The text decides which profiles are active, so placeholders are not looked up in the files of profiles.
    """

    def find(key: str) -> str | None:
        strong = lookup(key)
        if strong is not None:
            return strong
        unconditional = (each.document for each in reversed(documents) if _condition(each) is None)
        found = (document.find(*uniform_key(key)) for document in unconditional)
        return next((str(value) for value in found if value is not None), None)

    try:
        return resolve(str(value), find)
    except ConfigurationError as error:
        raise located(value, error) from error


def _split(text: str) -> list[str]:
    return [profile for profile in map(str.strip, text.split(",")) if profile]
