"""Read Java's .properties files, with the line number of each value.

A comment line `#---` or `!---` starts another document, as in Spring Boot. If a document sets a key twice, the last
value counts, as in Java, and `Document.replaced` has the earlier one.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamkit.config.document import Document
from streamkit.config.origin import Origin, Value
from streamkit.config.relaxed import parse_key
from streamkit.errors import ConfigurationError

_SEPARATORS: Final = ("#---", "!---")
_PLAIN: Final = re.compile(r"[ \t\f]*([^ \t\f=:]*)[ \t\f]*[=:]?[ \t\f]*(.*)")
_NO_SETTING: Final = re.compile(r"[ \t\f]*(?:[#!].*)?")


def read_properties(path: Path, name: str) -> list[Document]:
    """Return the documents of a file.

    A file that is not UTF-8 is read as Latin-1, the encoding of .properties files before Java 9.

    Args:
        path: The file.
        name: The name of the file in errors.

    Raises:
        ConfigurationError: A line has a `\\u` without four hexadecimal digits.
        OSError: The file cannot be read.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return parse_properties(text, name)


def parse_properties(text: str, name: str) -> list[Document]:
    """Return the documents of a text.

    Args:
        text: The text of a .properties file.
        name: The name of the file in errors.

    Raises:
        ConfigurationError: A line has a `\\u` without four hexadecimal digits.
    """
    document = Document()
    documents = [document]
    for line, comment, key, value in _elements(text, name):
        if comment is None:
            document.add(parse_key(key), Value(value, Origin(name, line), key))
        elif comment.rstrip() in _SEPARATORS:
            document = Document()
            documents.append(document)
    return documents


def _elements(text: str, name: str) -> Iterator[tuple[int, str | None, str, str]]:
    """Yield the line, the comment, the key and the value of each element; a setting has no comment.

    Most files have no backslash, so each setting is on one line as it is. For these, `javaproperties` is not imported:
    it imports an XML parser and an HTTP client, which takes as long as many a command.
    """
    plain = text.replace("\r\n", "\n")
    if "\\" in plain or "\r" in plain:
        yield from _unescaped_elements(text, name)
        return
    for number, line in enumerate(plain.split("\n"), 1):
        if _NO_SETTING.fullmatch(line):
            yield number, line, "", ""
        elif (found := _PLAIN.fullmatch(line)) is not None:
            yield number, None, found[1], found[2]


def _unescaped_elements(text: str, name: str) -> Iterator[tuple[int, str | None, str, str]]:
    import javaproperties

    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                yield line, None, element.key, element.value
            else:
                yield line, element.source, "", ""
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError:
        origin = str(Origin(name, line))
        raise ConfigurationError(f"{origin}: \\u needs four hexadecimal digits after it", origin=origin) from None
