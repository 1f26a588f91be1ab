"""Reads Java's .properties files, line numbers kept.

A comment line `#---` or `!---` starts another document, as in Spring Boot.
"""

from pathlib import Path

import javaproperties

from streamkit.config.document import Document
from streamkit.config.origin import Origin, Value
from streamkit.config.relaxed import parse_key
from streamkit.errors import ConfigurationError

_SEPARATORS = ("#---", "!---")


def read_properties(path: Path, name: str) -> list[Document]:
    """The documents of the file, which errors call `name`.

    The text is UTF-8; a file that is not is read as Latin-1, the encoding of old.

    Raises:
        ConfigurationError: A line is malformed.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return parse_properties(text, name)


def parse_properties(text: str, name: str) -> list[Document]:
    """The documents of the text, which errors call `name`.

    Raises:
        ConfigurationError: A line is malformed.
    """
    document = Document()
    documents = [document]
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                value = Value(element.value, Origin(name, line), element.key)
                document.add(parse_key(element.key), value)
            elif element.source.rstrip() in _SEPARATORS:
                document = Document()
                documents.append(document)
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError:
        origin = str(Origin(name, line))
        raise ConfigurationError(
            f"{origin}: \\u needs four hexadecimal digits after it", origin=origin
        ) from None
    return documents
