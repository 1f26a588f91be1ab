"""Finds and reads the settings files, in Spring Boot's order.

From the weakest to the strongest:

1. `application.yml`, then `application.properties`, in the directory, then in its `config/`;
2. for each active profile, in the order they are listed: `application-<profile>.yml`, then
   `application-<profile>.properties`, in the directory, then in its `config/`.

A later document of a file is stronger than an earlier one; a document with
`spring.config.activate.on-profile` counts only where that holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamkit.config import profiles
from streamkit.config.document import Document
from streamkit.config.properties_file import read_properties
from streamkit.config.source import KeyedSource
from streamkit.config.yaml_file import read_yaml
from streamkit.errors import ConfigurationError

_SUFFIXES = (".yaml", ".yml", ".properties")
_ON_PROFILE = ("spring", "config", "activate", "onprofile")
_ACTIVE = ("spring", "profiles", "active")
_INCLUDE = ("spring", "profiles", "include")


@dataclass(frozen=True, slots=True)
class Location:
    """Where files are looked for: a directory, or one file.

    Attributes:
        path: The directory or file.
        optional: Whether it may be missing.
    """

    path: Path
    optional: bool = False

    @classmethod
    def parse(cls, text: str, directory: Path) -> "list[Location]":
        """The locations of a comma-separated list of paths, each with `optional:` before it or not."""
        locations = []
        for part in filter(None, map(str.strip, text.replace(";", ",").split(","))):
            optional = part.startswith("optional:")
            path = part.removeprefix("optional:").removeprefix("file:")
            locations.append(cls(directory / path, optional))
        return locations

    @classmethod
    def standard(cls, directory: Path) -> "list[Location]":
        """The places looked in when nothing else is said."""
        return [cls(directory, optional=True), cls(directory / "config", optional=True)]


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """What the files say.

    Attributes:
        sources: One for each document that counts, the weakest first.
        active_profiles: The profiles that were active, in their order.
    """

    sources: tuple[KeyedSource, ...]
    active_profiles: tuple[str, ...]


def load_files(
    locations: Sequence[Location], directory: Path, name: str = "application", active: str | None = None
) -> LoadedFiles:
    """Reads every settings file there is.

    Args:
        locations: Where to look, the weakest first.
        directory: What the file names in errors are relative to.
        name: The files' name, without profile and suffix.
        active: The active profiles when something stronger than the files lists them.

    Raises:
        ConfigurationError: A location is missing, or a file is malformed.
    """
    files = _Files(locations, directory, name)
    unconditional = list(files.documents())
    listed = _split(active) if active is not None else _profiles_in(unconditional)
    active_profiles = tuple(dict.fromkeys((*listed, *_profiles_in(unconditional, _INCLUDE)))) or ("default",)
    documents = [*unconditional, *(found for p in active_profiles for found in files.documents(p))]
    counting = [(where, document) for where, document in documents if _counts(document, active_profiles)]
    return LoadedFiles(
        tuple(KeyedSource(where, document.entries) for where, document in counting), active_profiles
    )


class _Files:
    def __init__(self, locations: Sequence[Location], directory: Path, name: str) -> None:
        self._locations = locations
        self._directory = directory
        self._name = name

    def documents(self, profile: str | None = None) -> Iterator[tuple[str, Document]]:
        """The documents of the profile's files, each with its file's name, the weakest first."""
        name = self._name if profile is None else f"{self._name}-{profile}"
        for location in self._locations:
            if location.path.is_dir():
                for path in (location.path / f"{name}{suffix}" for suffix in _SUFFIXES):
                    if path.is_file():
                        yield from self._read(path)
            elif location.path.is_file():
                # A location that is a file has no variants for profiles, as in Spring Boot.
                if profile is None:
                    yield from self._read(location.path)
            elif not location.optional:
                raise ConfigurationError(
                    f"there is no settings file or directory {str(location.path)!r}; "
                    "write `optional:` before it if it may be missing"
                )

    def _read(self, path: Path) -> Iterator[tuple[str, Document]]:
        where = str(path.relative_to(self._directory) if path.is_relative_to(self._directory) else path)
        read = read_properties if path.suffix == ".properties" else read_yaml
        try:
            return ((where, document) for document in read(path, where))
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{where}: it is not UTF-8, as a YAML file must be: byte {error.object[error.start]:#04x} at position "
                f"{error.start}",
                origin=where,
            ) from error
        except OSError as error:
            raise ConfigurationError(f"{where}: it cannot be read: {error.strerror}", origin=where) from error


def _counts(document: Document, active_profiles: Sequence[str]) -> bool:
    condition = document.find(*_ON_PROFILE)
    if condition is None:
        return True
    try:
        return profiles.matches(str(condition), active_profiles)
    except ValueError as error:
        origin = str(condition.origin)
        raise ConfigurationError(f"{origin}: {error}", key=condition.key, origin=origin) from error


def _profiles_in(documents: Iterable[tuple[str, Document]], key: tuple[str, ...] = _ACTIVE) -> list[str]:
    """The profiles the unconditional documents list: the last list wins."""
    found: list[str] = []
    for _, document in documents:
        if document.find(*_ON_PROFILE) is None:
            listed = document.find_list(*key)
            found = found if listed is None else listed
    return found


def _split(text: str) -> list[str]:
    return [profile for profile in map(str.strip, text.split(",")) if profile]
