"""The page of capabilities has a row per contract case and a cell per environment."""

from pathlib import Path

from streamkit.binder.capabilities import Capability
from streamkit.testing.contract.report import read_page, sections, write_page

PAGE = Path(__file__).parents[2] / "docs" / "capabilities.md"
ENVIRONMENTS = {"in memory", "bundled broker", "bundled broker, TCP", "Apache 4.9.7", "Apache 5.3.3", "Kafka"}


def test_page_has_every_case_and_capability() -> None:
    """For every environment; each contract run compares the cells."""
    cells = read_page(PAGE.read_text())
    rows = [case for _, cases in sections() for case in cases]
    assert set(cells) == {*rows, *(f"can {capability.value}" for capability in Capability)}
    assert {row: set(said) for row, said in cells.items() if set(said) != ENVIRONMENTS} == {}
    assert write_page(cells) == PAGE.read_text()
