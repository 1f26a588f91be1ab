"""Setting names and placeholders, for arbitrary texts."""

import string
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from streamkit.config.environment import Environment
from streamkit.config.placeholders import resolve
from streamkit.config.properties_file import parse_properties
from streamkit.config.relaxed import format_key, kebab, parse_key, uniform
from streamkit.config.source import EnvironmentVariables, table_source
from streamkit.errors import ConfigurationError

WORDS = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,4}", fullmatch=True), min_size=1, max_size=3)
SEGMENTS = st.lists(st.text(string.ascii_letters + string.digits + "._-|$ ", min_size=1, max_size=6), min_size=1)


def camel(words):
    return words[0] + "".join(word.capitalize() for word in words[1:])


@given(SEGMENTS)
def test_key_round_trip(segments):
    """A written key is parsed to the same segments."""
    assert parse_key(format_key(segments)) == tuple(segments)


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_every_spelling_is_found(names):
    """In a table and in environment variables."""
    spellings = [
        ".".join(map(camel, names)),
        ".".join("-".join(words) for words in names),
        ".".join("_".join(words) for words in names),
        ".".join("-".join(words).upper() for words in names),
    ]
    variable = "_".join("_".join(words) for words in names).upper()
    for source in (table_source("t", {spellings[0]: "x"}, "here"), EnvironmentVariables({variable: "x"})):
        environment = Environment([source])
        assert [environment.text(spelling) for spelling in spellings] == ["x"] * 4


@given(WORDS)
def test_kebab_case_is_the_same_name(words):
    """The documented spelling means the same setting."""
    assert uniform(kebab(camel(words))) == uniform("".join(words))


@given(st.text(alphabet="ab${}:\\ ", max_size=20))
def test_placeholder_resolution_terminates(text):
    """With a text, or an error with the reason."""
    with suppress(ConfigurationError):
        assert isinstance(resolve(text, {"a": "${b}", "b": "x", "ab": "${ab}"}.get), str)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\\"), max_size=30))
def test_text_without_placeholders_is_unchanged(text):
    """A text without placeholders is not touched."""
    if "${" not in text:
        assert resolve(text, {}.get) == text


@given(st.text(max_size=60))
def test_any_properties_file_is_read_or_refused(text):
    """The only error is a configuration error."""
    with suppress(ConfigurationError):
        for document in parse_properties(text, "f"):
            assert all(value.origin.line >= 1 for value in document.entries.values())
