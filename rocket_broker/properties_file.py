"""Java's ``.properties`` files, with the line each value stands on.

Apache's ``broker.conf`` and ``namesrv.conf`` are such files: ``key=value``, ``key: value``, ``#`` and ``!``
comments, ``\\`` at a line's end continues it, ``\\uXXXX`` escapes.
"""

import io
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import javaproperties
from javaproperties.reading import KeyValue

from rocket_broker.errors import BrokerError

__all__ = ["Entry", "entries_of", "parse_properties", "read_properties", "rewrite_properties"]


class Entry(NamedTuple):
    """One setting as it was written: the key, its text, and where (``broker.conf:12``)."""

    key: str
    value: str
    origin: str


def read_properties(path: Path) -> list[Entry]:
    """Return the file's settings in their order; a key given twice appears twice, the last one counts."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise BrokerError(f"cannot read the settings file {path}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise BrokerError(f"the settings file {path} is not UTF-8 text: {e}") from e
    return parse_properties(text, str(path))


def parse_properties(text: str, name: str) -> list[Entry]:
    """Return the settings in ``text``; origins read ``name:line``."""
    entries: list[Entry] = []
    line = 1
    try:
        for element in javaproperties.parse(io.StringIO(text)):
            if isinstance(element, KeyValue):
                entries.append(Entry(element.key, element.value.strip(), f"{name}:{line}"))
            line += element.source.count("\n") or element.source.count("\r")
    except javaproperties.InvalidUEscapeError as e:
        raise BrokerError(f"{name}:{line}: {e}") from e
    return entries


def entries_of(values: Mapping[str, str], origin: str) -> list[Entry]:
    """Return settings that come from code, all with the same origin."""
    return [Entry(key, value, origin) for key, value in values.items()]


def rewrite_properties(path: Path, changes: Mapping[str, str]) -> None:
    """Set the keys in the file, which is on the disk then; its comments, other lines and permissions stay as they are.

    Raises:
        OSError: It cannot be read or written; it is what it was.
    """
    path = path.resolve()  # what a link leads to
    left = dict(changes)
    parts: list[str] = []
    for element in javaproperties.parse(
        io.StringIO(path.read_text(encoding="utf-8") if path.exists() else "")
    ):
        if isinstance(element, KeyValue) and element.key in changes:
            if element.key in left:
                parts.append(_line(element.key, left.pop(element.key)))
        else:
            parts.append(element.source if element.source.endswith("\n") else element.source + "\n")
    parts += [_line(key, value) for key, value in left.items()]
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        if path.exists():
            shutil.copymode(path, temporary)
        file.write("".join(parts))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _line(key: str, value: str) -> str:
    return javaproperties.join_key_value(key, value) + "\n"
