"""Entry points: binder types, commands and plugins of installed distributions, imported on use.

::

    [project.entry-points."streamkit.commands"]
    feed = "zoo_tools:feed"

A name belongs to one distribution. If two distributions offer the same name, using that name is an error that names
both.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Final

__all__ = ["BINDERS", "COMMANDS", "PLUGINS", "claim_conflict", "described", "offers_of"]

BINDERS: Final = "streamkit.binders"
"""The group of binder plugins, named by their binder types; a plugin is loaded when an application uses its type."""
COMMANDS: Final = "streamkit.commands"
"""The group of `streamkit` commands, by name; a command is loaded when it runs."""
PLUGINS: Final = "streamkit.plugins"
"""The group of plugins of every application; they are loaded when an application reads its settings."""


def offers_of(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name, both sorted; nothing is imported.

    A name has more than one entry point only if different objects are offered under that name.
    """
    return {name: list(entries) for name, entries in _offers(group, _search_path()).items()}


@lru_cache(maxsize=8)
def _offers(group: str, search_path: tuple[tuple[str, int], ...]) -> dict[str, list[EntryPoint]]:
    """Read the entry points of a group, which takes some 10 ms for a hundred distributions.

    Args:
        group: The group.
        search_path: The present `_search_path`, the key of the cache.
    """
    offers: dict[str, dict[str, EntryPoint]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, _package(entry))):
        offers.setdefault(entry.name, {}).setdefault(entry.value, entry)
    return {name: list(entries.values()) for name, entries in offers.items()}


def _search_path() -> tuple[tuple[str, int], ...]:
    """Return the directories that hold distributions, with the time in which each was last changed, in nanoseconds."""
    return tuple((directory, _changed(Path(directory))) for directory in sys.path)


def _changed(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:  # not there: importlib finds nothing in it either
        return 0


def described(entry: EntryPoint) -> str:
    """Return the object and the package of an entry point as text, for errors."""
    package = _package(entry)
    return f"{entry.value} of package {package}" if package else entry.value


def claim_conflict(what: str, claims: Iterable[str]) -> str:
    """Return the error text for a name that several plugins or packages claim.

    Args:
        what: The claimed name, such as ``binder type 'kafka'``.
        claims: The plugins or packages that claim it.
    """
    return f"{what} is claimed by {' and by '.join(claims)}: remove all but one of them"


def _package(entry: EntryPoint) -> str:
    return "" if entry.dist is None else _name_of(entry.dist)


@lru_cache(maxsize=256)
def _name_of(distribution: Distribution) -> str:
    return distribution.name  # each time, this parses the distribution's metadata
