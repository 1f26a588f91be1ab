"""The capabilities page: written from a run, read, and compared."""

import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.testing.contract.report import read_page, sections, write_page

CASES = """
from collections.abc import Iterator
import pytest
from streamkit.binder.capabilities import Capability
from streamkit.testing.contract import BinderContract
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.test_inmemory_contract import InMemoryEnvironment


class TestIt(BinderContract):
    @pytest.fixture
    def environment(self) -> Iterator[InMemoryEnvironment]:
        with VirtualTime() as time:
            made = InMemoryEnvironment(time)
            made.name = "one"
            made.capabilities -= LESS
            yield made


LESS = {Capability.TAG}
"""

REPORTING = """
import pytest
from pathlib import Path
from streamkit.testing.contract.report import ContractReport


def pytest_configure(config):
    if config.getoption("--contract-report") is None:
        config.pluginmanager.register(ContractReport(Path("page.md"), write=False))
"""


def run(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run some of the cases in a separate process."""
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={home}", *arguments],
        cwd=home,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_run_writes_the_page_and_detects_a_stale_one(tmp_path: Path) -> None:
    """A run fails when the page differs from its results."""
    (tmp_path / "conftest.py").write_text(REPORTING)
    file = tmp_path / "test_it.py"
    file.write_text(CASES)
    chosen = ("test_it.py", "-k", "text_is_sent_without_quotes or redelivery_level_minus_one")
    done = run(tmp_path, *chosen, "--contract-report=page.md")
    assert done.returncode == 0, done.stdout + done.stderr
    page = tmp_path / "page.md"
    cells = read_page(page.read_text())
    assert cells["Text is sent without quotes"] == {"one": "yes"}
    assert (cells["can order"], cells["can tag"]) == ({"one": "yes"}, {"one": "no"})
    assert run(tmp_path, *chosen).returncode == 0
    file.write_text(CASES.replace("{Capability.TAG}", "{Capability.DEAD_LETTER}"))
    stale = run(tmp_path, *chosen)
    assert stale.returncode == 1
    assert "page.md is stale: run pytest --contract-report=page.md" in stale.stdout
    assert "'refused: dead-letter', the page says 'yes'" in stale.stdout


def test_page_round_trip() -> None:
    """Rows of removed cases are dropped."""
    rows = [sentence for _, sentences in sections() for sentence in sentences]
    cells = {row: {"one": "yes", "two": "refused: tag"} for row in rows}
    read = read_page(write_page(cells))
    assert {row: read[row] for row in rows} == cells
    assert "no such case" not in write_page({**cells, "no such case": {"one": "yes"}})


def test_every_case_has_a_unique_sentence() -> None:
    """Rows are distinguished by their cases' names in words."""
    rows = [sentence for _, sentences in sections() for sentence in sentences]
    assert "The members of a group share its messages" in rows
    assert len(set(rows)) == len(rows)
