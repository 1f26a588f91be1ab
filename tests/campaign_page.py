"""The place of a campaign's summary in a page of the documentation."""

from pathlib import Path

__all__ = ["write_summary"]


def write_summary(page: Path, campaign: str, summary: str, *, part: str = "") -> None:
    """Write a summary into a page, between the two comments that name the campaign.

    Args:
        page: The page.
        campaign: The name of the campaign, such as `outbox`.
        summary: Markdown; it ends with a line feed.
        part: What of the campaign is summed up, if it has a summary for each of several parts.
    """
    of = f", {part}" if part else ""
    begin = f"<!-- written by the {campaign} campaign{of} -->\n"
    end = f"<!-- end of what the {campaign} campaign writes{of} -->\n"
    before, rest = page.read_text().split(begin)
    page.write_text(before + begin + summary + end + rest.split(end)[1])
