"""YAML files, with line numbers and documents."""

from pathlib import Path

import pytest

from streamkit.config.environment import Environment
from streamkit.config.yaml_file import parse_yaml
from streamkit.errors import ConfigurationError
from tests.unit.test_yaml_bounds import TOO_LARGE


def flat(text):
    """Return [{key: (value, line)}, …], one per document."""
    return [
        {value.key: (value.value, value.origin.line) for value in document.entries.values()}
        for document in parse_yaml(text, "f")
    ]


def test_nesting():
    """Nested keys, dotted keys, lists and brackets give the same keys as in .properties."""
    text = """
a:
  b.c: text
  d: [1, 2.5, {e: true}]
  f: null
  g: {}
  "[x.y]": 2024-01-02
"""
    assert flat(text) == [
        {
            "a.b.c": ("text", 3),
            "a.d[0]": (1, 4),
            "a.d[1]": (2.5, 4),
            "a.d[2].e": (True, 4),
            "a.f": (None, 5),
            "a.g": ("", 6),
            "a[x.y]": ("2024-01-02", 7),
        }
    ]


def test_documents_are_separated():
    """`---` starts a document; an empty one has no settings."""
    assert flat("a: 1\n---\n---\nb: 2\n") == [{"a": (1, 1)}, {}, {"b": (2, 4)}]


def test_merging():
    """Anchors and merge keys work; explicit values override merged ones."""
    assert flat("base: &b {x: 1, y: 2}\nz:\n  <<: *b\n  y: 3") == [
        {"base.x": (1, 1), "base.y": (2, 1), "z.x": (1, 1), "z.y": (3, 4)}
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2", "f:2: the key 'a' is given twice"),
        ("a: [1", "f:1: "),
        ("- 1\n- 2", "f:1: expected `key: value`, not a seq"),
        ("just text", "f:1: expected `key: value`, not a str"),
    ],
)
def test_malformed_file_names_itself_and_the_line(text, expected):
    """A malformed file names itself and the line."""
    with pytest.raises(ConfigurationError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_file_that_stands_for_too_much_names_itself_and_the_line(name: str) -> None:
    """The start of an application neither hangs nor takes all memory."""
    text, line, says = TOO_LARGE[name]
    with pytest.raises(ConfigurationError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value) == f"f:{line}: {says}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: \xff", "application.yml: it is not UTF-8, as a YAML file must be: byte 0xff at position 3"),
        (b"a: b\nc: \x00", "application.yml:2: the character U+0000 is not allowed in YAML"),
    ],
)
def test_binary_file_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    """With its name, in one line."""
    (tmp_path / "application.yml").write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        Environment.load(directory=tmp_path, variables={})
    assert str(caught.value).startswith(message)


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    """With its name and the reason."""
    (tmp_path / "application.yml").symlink_to("/proc/self/mem")
    with pytest.raises(ConfigurationError, match=r"application\.yml: it cannot be read: Input/output error"):
        Environment.load(directory=tmp_path, variables={})
