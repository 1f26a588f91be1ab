"""A campaign's summary is written into the page of the documentation that has a place for it."""

from pathlib import Path

import pytest

from tests.campaign_page import write_summary


@pytest.mark.parametrize("part", ["", "two masters"])
def test_summary_replaces_what_is_between_its_comments(tmp_path: Path, part: str) -> None:
    """The text around them and the summary of another part stay, however often it is written."""
    page = tmp_path / "page.md"
    of = f", {part}" if part else ""
    begin, end = f"<!-- written by the kill campaign{of} -->\n", f"<!-- end of what the kill campaign writes{of} -->\n"
    other = "<!-- written by the kill campaign, other -->\nkept\n<!-- end of what the kill campaign writes, other -->\n"
    page.write_text(f"before\n{begin}what was\n{end}after\n{other}")
    for _ in range(2):
        write_summary(page, "kill", "what is\n", part=part)
    assert page.read_text() == f"before\n{begin}what is\n{end}after\n{other}"
