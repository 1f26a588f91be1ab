"""Java's ``.properties`` files, with the line number of each value.

Apache's ``broker.conf`` and ``namesrv.conf`` are such files: ``key=value``, ``key: value``, ``#`` and ``!``
comments, ``\\`` at a line's end continues it, ``\\uXXXX`` escapes.
"""

import io
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocket_broker.errors import BrokerError
from rocket_broker.files.private_files import open_private, sync_directory

if TYPE_CHECKING:
    import javaproperties

__all__ = [
    "Entry",
    "entries_of",
    "parse_properties",
    "read_properties",
    "read_text",
    "replace_text",
    "rewritten",
]


class Entry(NamedTuple):
    """A setting as written: its key, its text, and its origin (``broker.conf:12``)."""

    key: str
    value: str
    origin: str


def read_properties(path: Path) -> list[Entry]:
    """Return the file's settings in their order; a key that is given twice appears twice, and the last one counts.

    Raises:
        BrokerError: The file cannot be read, is not UTF-8 text, or has an invalid escape.
    """
    return parse_properties(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return the text of a settings file with its line ends unchanged.

    Raises:
        BrokerError: The file cannot be read, or is not UTF-8 text.
    """
    try:
        return path.read_bytes().decode()
    except OSError as e:
        raise BrokerError(f"cannot read the settings file {path}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise BrokerError(f"the settings file {path} is not UTF-8 text: {e}") from e


def parse_properties(text: str, name: str) -> list[Entry]:
    """Return the settings in ``text`` with origins ``name:line``.

    Raises:
        BrokerError: An escape is invalid.
    """
    import javaproperties  # most brokers have no such file, and the import takes 20 ms

    entries: list[Entry] = []
    line = 1
    try:
        for element in _elements(text):
            if isinstance(element, javaproperties.KeyValue):
                entries.append(Entry(element.key, element.value.strip(), f"{name}:{line}"))
            line += element.source.count("\n") or element.source.count("\r")
    except javaproperties.InvalidUEscapeError as e:
        raise BrokerError(f"{name}:{line}: {e}") from e
    return entries


def entries_of(values: Mapping[str, str], origin: str) -> list[Entry]:
    """Return settings that come from code, all with the same origin."""
    return [Entry(key, value, origin) for key, value in values.items()]


def rewritten(text: str, changes: Mapping[str, str]) -> str:
    """Return the text of a settings file with changed keys; comments, order and all other lines stay.

    A key that the file has twice appears once afterwards; a key that the file lacks is added at the end.

    Raises:
        BrokerError: The result would not have the changed values, because a line of the file continues on the next.
    """
    import javaproperties

    left = dict(changes)
    parts: list[str] = []
    for element in _elements(text):
        if isinstance(element, javaproperties.KeyValue) and element.key in changes:
            if element.key in left:
                parts.append(_line(element.key, left.pop(element.key)))
        else:
            ends = element.source.endswith(("\n", "\r"))
            parts.append(element.source if ends else element.source + "\n")
    result = "".join(parts) + "".join(_line(key, value) for key, value in left.items())
    if _values(result) != _values(text) | dict(changes):
        raise BrokerError(
            "the settings file cannot be rewritten safely: check whether its last line ends with a backslash"
        )
    return result


def replace_text(path: Path, text: str) -> None:
    """Replace a settings file, or the file that a link points to; the new text is on the disk afterwards.

    The permissions stay; a new file can be read by its owner only.

    Raises:
        OSError: The file cannot be written, and is unchanged.
    """
    path = path.resolve()
    # With the process's id, since several brokers of one command may write the same file at once.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with open_private(temporary, "wb") as file:
            if path.exists():
                shutil.copymode(path, temporary)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _elements(text: str) -> Iterator["javaproperties.PropertiesElement"]:
    import javaproperties

    return javaproperties.parse(io.StringIO(text, newline=""))


def _values(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse_properties(text, "settings file")}


def _line(key: str, value: str) -> str:
    import javaproperties

    return javaproperties.join_key_value(key, value) + "\n"
