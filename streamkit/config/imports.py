"""The imports of a settings document: `spring.config.import`.

./more.yml   optional:file:/etc/shop/shop.properties   file:/etc/shop/config[.yaml]     files
configtree:/run/secrets/                                                                 a file for each setting
configtree:/run/secrets/*/                                                               the same in each directory
nacos:shop.yml   configserver:http://…                                                   not read; a warning says so
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streamkit.config.document import Document
from streamkit.config.located_errors import located
from streamkit.config.origin import Origin, Value
from streamkit.config.placeholders import Lookup, resolve
from streamkit.config.relaxed import parse_key, uniform_key
from streamkit.config.verdict import SettingWarning
from streamkit.errors import ConfigurationError

_IMPORT = ("spring", "config", "import")
_SCHEME = re.compile(r"([a-z][a-z0-9-]+):(.*)", re.DOTALL)
_SUFFIX_HINT = re.compile(r"(.*)\[(\.\w+)\]")
_FILES = ("file", "classpath")
_TREE = "configtree"
_SUFFIXES = (".properties", ".yml", ".yaml")


class Import(msgspec.Struct, frozen=True):
    """A file or directory to import, which exists.

    Attributes:
        path: The file or directory.
        suffix: The format of the file: `.properties`, `.yml` or `.yaml`.
        is_tree: Whether each file below the directory is a setting.
    """

    path: Path
    suffix: str = ""
    is_tree: bool = False


def imported_by(document: Document, directory: Path, lookup: Lookup) -> Iterator[Import | SettingWarning]:
    """Yield the imports of a document in its order, and a warning for each import of an unsupported kind.

    Args:
        document: The document.
        directory: The directory of the document's file, to which paths are relative.
        lookup: Returns settings that are stronger than files, for placeholders.

    Raises:
        ConfigurationError: An import that is not optional is missing, a file has an unknown suffix, or a placeholder
            cannot be replaced.
    """
    for value in document.find_values(*_IMPORT):
        for part in filter(None, map(str.strip, str(value).split(","))):
            text = part.removeprefix("optional:")
            scheme = _SCHEME.fullmatch(text)
            kind, rest = (scheme[1], scheme[2]) if scheme is not None else ("file", text)
            if kind not in (*_FILES, _TREE):
                yield SettingWarning(
                    value, f"{kind}: is not read here; keep what this application needs of it in a file"
                )
                continue
            try:
                rest = resolve(rest, lambda key: _own(document, key, lookup(key)))
                path = directory / (rest.lstrip("/") if kind == "classpath" else rest)
                yield from _found(path, kind, is_optional=text != part)
            except ConfigurationError as error:
                raise located(value, error) from error


def directories_of(path: Path) -> list[Path]:
    """Return the directory of a path; if its last part is `*`, all directories there, sorted; empty if there is none.

    Directories that begin with two dots are left out: Kubernetes keeps the files of mounted volumes in such.
    """
    if path.name == "*":
        return sorted(each for each in path.parent.glob("*") if each.is_dir() and not each.name.startswith(".."))
    return [path] if path.is_dir() else []


def _found(path: Path, kind: str, *, is_optional: bool) -> Iterator[Import]:
    directories = directories_of(path)
    if directories:
        for each in directories:
            yield Import(each, is_tree=kind == _TREE)
        return
    hinted = _SUFFIX_HINT.fullmatch(str(path))
    suffix = path.suffix if hinted is None else hinted[2]
    if hinted is not None:
        path = Path(hinted[1])
    if path.is_file():
        if suffix not in _SUFFIXES:
            raise ConfigurationError(
                f"{path.name!r} ends neither in .properties nor in .yml: name its format, such as {path.name}[.yaml]"
            )
        yield Import(path, suffix)
    elif not is_optional:
        raise ConfigurationError(f"there is no {str(path)!r}; write `optional:` before it if it may be missing")


def read_tree_of_files(directory: Path, where: str) -> Document:
    """Return a document with a setting for each file below a directory: the path is the key, the text the value.

    Args:
        directory: The directory.
        where: The name of the directory in errors.
    """
    document = Document()
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        # Kubernetes mounts a volume's files as links into a directory named with two leading dots: skip the targets.
        if path.is_file() and not any(part.startswith(".") for part in parts):
            key = ".".join(parts)
            text = path.read_text(encoding="utf-8").removesuffix("\n")
            document.add(parse_key(key), Value(text, Origin(f"{where}/{'/'.join(parts)}"), key))
    return document


def _own(document: Document, key: str, stronger: str | None) -> str | None:
    found = document.find(*uniform_key(key)) if stronger is None else None
    return stronger if found is None else str(found)
