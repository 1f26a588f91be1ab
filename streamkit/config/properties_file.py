"""Read Java's .properties files, with the line number of each value.

A comment line `#---` or `!---` starts another document, as in Spring Boot. If a document sets a key twice, the last
value counts, as in Java, and `Document.replaced` has the earlier one.
"""

from pathlib import Path

import javaproperties

from streamkit.config.document import Document
from streamkit.config.origin import Origin, Value
from streamkit.config.relaxed import parse_key
from streamkit.errors import ConfigurationError

_SEPARATORS = ("#---", "!---")


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
        raise ConfigurationError(f"{origin}: \\u needs four hexadecimal digits after it", origin=origin) from None
    return documents
