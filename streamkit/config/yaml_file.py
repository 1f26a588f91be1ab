"""Read YAML files, with the line number of each value; `---` starts another document."""

from collections.abc import Hashable, Iterator
from pathlib import Path

import yaml
from yaml.reader import ReaderError

from streamkit.config.document import Document
from streamkit.config.origin import Origin, Scalar, Value, scalar_text
from streamkit.config.relaxed import Segments, format_key, parse_key
from streamkit.errors import ConfigurationError
from streamkit.yaml_bounds import YamlTooLargeError, check_bounds

_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_NO_TAGS = "`!` begins a tag, which settings files do not have: put a value that begins with `!` in quotes"
_UNQUOTED = {
    "found undefined alias": "`*` begins an alias, whose anchor is missing: put a value that begins with `*` in quotes",
    "found undefined tag handle": _NO_TAGS,
    "could not determine a constructor for the tag": _NO_TAGS,
}


class _Loader(yaml.SafeLoader):
    """A loader of YAML's safe types, except dates: they stay text, which the type of the setting interprets."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class-level table, with one type left out
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_yaml(path: Path, name: str) -> list[Document]:
    """Return the documents of a file.

    Args:
        path: The file.
        name: The name of the file in errors.

    Raises:
        ConfigurationError: The text is not valid YAML, it has too many levels or its aliases stand for too much, or a
            document is not a mapping.
        OSError: The file cannot be read.
        UnicodeDecodeError: The file is not UTF-8.
    """
    return parse_yaml(path.read_text(encoding="utf-8-sig"), name)


def parse_yaml(text: str, name: str) -> list[Document]:
    """Return the documents of a text.

    Args:
        text: The YAML text.
        name: The name of the file in errors.

    Raises:
        ConfigurationError: The text is not valid YAML, it has too many levels or its aliases stand for too much, or a
            document is not a mapping.
    """
    try:
        loader = _Loader(text)
    except ReaderError as error:
        origin = Origin(name, text.count("\n", 0, error.position) + 1)
        raise ConfigurationError(
            f"{origin}: the character U+{error.character:04X} is not allowed in YAML", origin=str(origin)
        ) from error
    try:
        check_bounds(text, _Loader)
        documents = []
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                documents.append(_document(loader, node, name))
        return documents
    except YamlTooLargeError as error:
        origin = Origin(name, error.line)
        raise ConfigurationError(f"{origin}: {error}", origin=str(origin)) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        origin = Origin(name, line)
        # Not `from error`: tracebacks would print the text of that error, which repeats the line and a secret in it.
        raise ConfigurationError(f"{origin}: {_problem(error)}", origin=str(origin)) from None
    finally:
        loader.dispose()


def _problem(error: yaml.MarkedYAMLError) -> str:
    """Return the problem as text, without the name of an alias or tag, which may be an unquoted password."""
    text = error.problem or error.context or "not valid YAML"
    return next((plain for beginning, plain in _UNQUOTED.items() if text.startswith(beginning)), text)


def _document(loader: _Loader, node: yaml.Node, name: str) -> Document:
    document = Document()
    if isinstance(node, yaml.ScalarNode) and node.value == "":
        return document
    if not isinstance(node, yaml.MappingNode):
        origin = Origin(name, node.start_mark.line + 1)
        raise ConfigurationError(
            f"{origin}: expected `key: value`, not a {node.tag.rpartition(':')[2]}", origin=str(origin)
        )
    for segments, value, line in _leaves(loader, node, ()):
        document.add(segments, Value(value, Origin(name, line), format_key(segments)))
    return document


def _leaves(loader: _Loader, node: yaml.Node, path: Segments) -> Iterator[tuple[Segments, Scalar, int]]:
    """Yield every scalar under a node with its path and line; an empty list or mapping is the empty text."""
    if isinstance(node, yaml.ScalarNode):
        yield path, _scalar(loader, node), node.start_mark.line + 1
    elif path and not node.value:
        yield path, "", node.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _leaves(loader, item, (*path, str(index)))
    elif isinstance(node, yaml.MappingNode):
        _refuse_duplicates(loader, node)
        loader.flatten_mapping(node)
        for key_node, value_node in node.value:
            key = scalar_text(_scalar(loader, key_node))
            yield from _leaves(loader, value_node, (*path, *parse_key(key)))


def _refuse_duplicates(loader: _Loader, node: yaml.MappingNode) -> None:
    seen: set[Scalar] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:
            continue
        key = _scalar(loader, key_node)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark)
        seen.add(key)


def _scalar(loader: _Loader, node: yaml.Node) -> Scalar:
    value: Hashable = loader.construct_object(node)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
