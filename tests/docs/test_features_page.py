"""The tables of features name existing tests, and each row has a test or a reason."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "features.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)(?:::(test_\w+))?`", PAGE.read_text())))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_tests_and_paths_of_a_row_exist(file: str, test: str) -> None:
    """Below `tests/` or `streamkit/testing/`, or as a path of the project."""
    places = (ROOT / "tests" / file, ROOT / "streamkit" / "testing" / file, ROOT / file)
    found = next((place for place in places if place.is_file()), None)
    assert found is not None, f"{file} does not exist"
    if test:
        assert re.search(rf"def {test}\(", found.read_text()), f"{file} has no {test}"


def test_every_row_has_a_test_or_a_reason() -> None:
    """A row without a test says that the feature is missing, and why."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "shown by" not in line]
    bare = [row for row in rows if "::test_" not in row and "not here" not in row and "not added" not in row]
    assert [row.split("|")[1].strip() for row in bare] == [
        "ports and log lines of name server and broker",
        "the use cases",
    ]
