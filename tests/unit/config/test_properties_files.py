"""Java's .properties files, with line numbers and documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.config.environment import Environment
from streamkit.config.properties_file import parse_properties, read_properties
from streamkit.errors import ConfigurationError


def lines(text):
    """Return [{key: (value, line)}, …], one per document."""
    return [
        {value.key: (value.value, value.origin.line) for value in document.entries.values()}
        for document in parse_properties(text, "f")
    ]


def test_syntax_is_javas():
    """Separators, comments, escapes and continuation lines; each key has its line."""
    text = "# comment\n\na=1\nb : two words \n  c d\n! other\ne=x\\\n    y\nf=\\u4e2d\ng\n"
    assert lines(text) == [
        {"a": ("1", 3), "b": ("two words ", 4), "c": ("d", 5), "e": ("xy", 7), "f": ("中", 9), "g": ("", 10)}
    ]


@given(st.text(alphabet="ab=: \t\f#!\n-\x85\u2028", max_size=30))
def test_lines_without_a_backslash_are_read_as_any_others(text):
    """They are read without the parser for escapes and continued lines, which a comment with a backslash asks for."""
    for plain in (text, text.replace("\n", "\r\n")):
        assert parse_properties(plain, "f") == parse_properties(f"{plain}\n# \\", "f")


def test_key_set_twice_is_a_warning(caplog, tmp_path):
    """In any spelling; the last value counts, and another document may set the key again."""
    text = "a.b-c=1\na.d=2\na.bC=3\n#---\na.b-c=4\n"
    assert lines(text) == [{"a.bC": ("3", 3), "a.d": ("2", 2)}, {"a.b-c": ("4", 5)}]
    (tmp_path / "application.properties").write_text(text)
    Environment.load(directory=tmp_path, variables={})
    assert caplog.messages == ["application.properties:1: a.b-c has no effect: application.properties:3 sets it again"]


@pytest.mark.parametrize("separator", ["#---", "!---"])
def test_documents_are_separated(separator):
    """A line of exactly `#---` or `!---` starts a document; with more text it is a comment."""
    assert lines(f"a=1\n{separator}\nb=2\n{separator} no\nc=3") == [
        {"a": ("1", 1)},
        {"b": ("2", 3), "c": ("3", 5)},
    ]


def test_last_of_repeated_keys_wins():
    """The last of two equal keys wins."""
    assert lines("a=1\na=2") == [{"a": ("2", 2)}]


def test_malformed_escape_names_file_and_line():
    r"""A wrong \u escape."""
    with pytest.raises(ConfigurationError, match=r"f:2: \\u needs four hexadecimal digits") as caught:
        parse_properties("a=1\nb=\\u00", "f")
    assert caught.value.origin == "f:2"


@pytest.mark.parametrize(("encoding", "text"), [("utf-8", "中"), ("utf-8-sig", "中"), ("latin-1", "é")])
def test_encodings(tmp_path, encoding, text):
    """UTF-8, with Latin-1 as the fallback."""
    path = tmp_path / "x.properties"
    path.write_bytes(f"a={text}".encode(encoding))
    (document,) = read_properties(path, "x")
    assert str(document.entries["a",]) == text
