"""Rewritten settings files: the next start reads the requested values, or nothing changes."""

from hypothesis import given
from hypothesis import strategies as st

from rocket_broker.errors import BrokerError
from rocket_broker.settings.properties_file import parse_properties, rewritten

LINES = st.sampled_from(
    ["a=1", "b = 2", "c:3", "# a=1", "! no", "", "  ", "d", "e=\\", "a\\u0062=4", "\\", "x\\=y=1", "=", "ä=ö"]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
KEYS = st.sampled_from(["a", "b", "ab", "d", "new", "x=y", "with blank", "#", "ä"])
VALUES = st.text(st.characters(codec="utf-8"), max_size=5).map(str.strip)


def values(text: str) -> dict[str, str]:
    """Return the settings in a file."""
    return {entry.key: entry.value for entry in parse_properties(text, "file")}


@given(st.lists(st.tuples(LINES, ENDS)), LINES, st.dictionaries(KEYS, VALUES, max_size=3))
def test_rewritten_file_keeps_its_settings_and_has_the_requested_ones(
    lines: list[tuple[str, str]], last: str, changes: dict[str, str]
) -> None:
    """Or it is not rewritten at all."""
    text = "".join(line + end for line, end in lines) + last
    try:
        changed = rewritten(text, changes)
    except BrokerError:
        assert text.rstrip("\r\n").endswith("\\")
    else:
        assert values(changed) == values(text) | changes
