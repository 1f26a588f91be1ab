"""The page about opening a store agrees with the code."""

import inspect
import re
from pathlib import Path

from rocket_broker.store import recovery

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def numbers(pattern: str, text: str) -> list[int]:
    """Return the numbers of the steps."""
    return [int(number) for number in re.findall(pattern, text, re.MULTILINE)]


def test_steps_of_opening_a_store_are_those_of_the_code() -> None:
    """Equally many on the page, in the module's docstring and in its code, in one order."""
    (section,) = re.findall(r"^## How a store is opened$(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    on_page = numbers(r"^(\d+)\. ", section)
    assert on_page == [*range(1, 13)]
    assert numbers(r"^(\d+)\. ", inspect.getdoc(recovery) or "") == on_page
    assert numbers(r"^ +# (\d+)\.$", inspect.getsource(recovery.Recovery.run)) == on_page


def test_page_has_a_place_for_the_crash_campaign() -> None:
    """Between two comments, where `make crashes` writes."""
    text = PAGE.read_text()
    begin, end = "<!-- written by the crash campaign -->", "<!-- end of what the crash campaign writes -->"
    assert text.count(begin) == text.count(end) == 1
    assert text.index(begin) < text.index("| kills |") < text.index(end)
