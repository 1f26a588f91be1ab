"""Entry points: binder types, commands and plugins of installed distributions, imported on use.

::

    [project.entry-points."streamkit.commands"]
    feed = "zoo_tools:feed"

A name belongs to one distribution. If two distributions offer the same name, using that name is an error that names
both.

The metadata of distributions is read here, and not by `importlib.metadata`: every command begins with that, and the
import of that module takes longer than the reading. Distributions within zip files are not found.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["BINDERS", "COMMANDS", "METRICS", "PLUGINS", "EntryPoint", "claim_conflict", "described", "offers_of"]

BINDERS: Final = "streamkit.binders"
"""The group of binder plugins, named by their binder types; a plugin is loaded when an application uses its type."""
COMMANDS: Final = "streamkit.commands"
"""The group of `streamkit` commands, by name; a command is loaded when it runs."""
METRICS: Final = "streamkit.metrics"
"""The group of tables of metrics, by name; `streamkit metrics` loads them."""
PLUGINS: Final = "streamkit.plugins"
"""The group of plugins of every application; they are loaded when an application reads its settings."""

_OURS: Final = "streamkit."
_SEPARATORS: Final = re.compile(r"[-_.]+")


class EntryPoint(NamedTuple):
    """An object that an installed distribution offers under a name.

    Attributes:
        name: The name.
        value: The object's place, such as `zoo_tools:feed`, or that of a module.
        metadata: The directory with the metadata of the distribution.
    """

    name: str
    value: str
    metadata: str

    @property
    def module(self) -> str:
        """The module."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    @property
    def attr(self) -> str:
        """The attribute of the module; empty for the module itself."""
        return self.value.partition("[")[0].partition(":")[2].strip()

    def load(self) -> object:
        """Import the module, and return the object."""
        found: object = import_module(self.module)
        for name in filter(None, self.attr.split(".")):
            found = getattr(found, name)
        return found

    @property
    def package(self) -> str:
        """The name of the distribution; empty if its metadata does not have it."""
        return _field(self.metadata, "Name")

    @property
    def version(self) -> str:
        """The version of the distribution; empty if its metadata does not have it."""
        return _field(self.metadata, "Version")


def offers_of(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name, both sorted; nothing is imported.

    A name has more than one entry point only if different objects are offered under that name.
    """
    offers: dict[str, dict[str, EntryPoint]] = {}
    found = [entry for of_group, entry in _installed(_search_path()) if of_group == group]
    for entry in sorted(found, key=lambda entry: (entry.name, entry.metadata)):
        offers.setdefault(entry.name, {}).setdefault(entry.value, entry)
    return {
        name: list(entries.values()) if len(entries) == 1 else sorted(entries.values(), key=lambda entry: entry.package)
        for name, entries in offers.items()
    }


@lru_cache(maxsize=8)
def _installed(search_path: tuple[tuple[str, int], ...]) -> list[tuple[str, EntryPoint]]:
    """Return the entry points of all groups of streamkit, each with its group.

    Args:
        search_path: The present `_search_path`, the key of the cache.
    """
    found: list[tuple[str, EntryPoint]] = []
    seen: set[str] = set()
    for directory, _ in search_path:
        for name in _metadata_in(directory):
            distribution = _SEPARATORS.sub("-", name.rpartition(".")[0].partition("-")[0]).lower()
            # Python imports from the first directory that has a package, so this is the one that counts.
            if distribution not in seen:
                seen.add(distribution)
                found.extend(_entries(f"{directory or '.'}/{name}"))
    return found


def _metadata_in(directory: str) -> list[str]:
    """Return the names of the directories that hold the metadata of distributions."""
    try:
        return [
            entry.name for entry in os.scandir(directory or ".") if entry.name.endswith((".dist-info", ".egg-info"))
        ]
    except OSError:  # not there, or a zip file
        return []


def _entries(metadata: str) -> Iterator[tuple[str, EntryPoint]]:
    """Yield the entry points of a distribution that are streamkit's, each with its group."""
    try:
        # A `Path` for each of hundreds of distributions would take longer than the reading.
        with open(f"{metadata}/entry_points.txt", "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError:  # most distributions have none
        return
    if _OURS.encode() not in text:
        return
    group = ""
    for line in map(str.strip, text.decode().splitlines()):
        if line.startswith("["):
            group = line.strip("[]").strip()
        elif group.startswith(_OURS) and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield group, EntryPoint(name.strip(), value.strip(), metadata)


def _search_path() -> tuple[tuple[str, int], ...]:
    """Return the directories that hold distributions, with the time in which each was last changed, in nanoseconds."""
    return tuple((directory, _changed(Path(directory))) for directory in sys.path)


def _changed(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:  # not there: nothing is found in it either
        return 0


def described(entry: EntryPoint) -> str:
    """Return the object and the package of an entry point as text, for errors."""
    package = entry.package
    return f"{entry.value} of package {package}" if package else entry.value


def claim_conflict(what: str, claims: Iterable[str]) -> str:
    """Return the error text for a name that several plugins or packages claim.

    Args:
        what: The claimed name, such as ``binder type 'kafka'``.
        claims: The plugins or packages that claim it.
    """
    return f"{what} is claimed by {' and by '.join(claims)}: remove all but one of them"


@lru_cache(maxsize=256)
def _field(metadata: str, name: str) -> str:
    """Return a field of a distribution's metadata; empty if there is none."""
    for file in ("METADATA", "PKG-INFO"):
        try:
            text = Path(metadata, file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = re.search(rf"^{name}:\s*(.+)$", text.partition("\n\n")[0], re.MULTILINE)
        return "" if found is None else found[1].strip()
    return ""
