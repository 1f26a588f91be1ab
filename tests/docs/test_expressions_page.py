"""docs/expressions.md lists the limits of the code."""

import re
from pathlib import Path

from streamkit.expression import limits, methods

PAGE = (Path(__file__).parents[2] / "docs" / "expressions.md").read_text()


def test_limits_are_those_of_the_code() -> None:
    """Each constant is in the table with its value."""
    rows = re.findall(r"^\|[^|]+\| ([\d,]+) \| `([A-Z_]+)` \|$", PAGE, re.MULTILINE)
    listed = {name: int(value.replace(",", "")) for value, name in rows}
    assert listed == {name: value for name, value in vars(limits).items() if name.isupper()}


def test_methods_are_those_of_the_code() -> None:
    """Each is listed, and no others."""
    table = PAGE[PAGE.index("| of | methods |") : PAGE.index("Nothing else is reachable")]
    listed = set(re.findall(r"`(\w+)`", table))
    assert all(methods.is_method(name) for name in listed)
    for line in (methods.__doc__ or "").splitlines()[2:]:
        assert set(line.split()[1:]) <= listed
