"""Type checkers see listeners with their own types."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


TYPED = HERE / "typed_application.py"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The wrongly typed file. In the repository it is a text, so that checkers of the whole project pass over it."""
    file = tmp_path / "wrongly_typed.py"
    file.write_text((HERE / "wrongly_typed.txt").read_text())
    return file


def announced(file: Path) -> list[tuple[int, str]]:
    """Return the lines whose comments announce an error, each with mypy's name of it."""
    lines = enumerate(file.read_text().splitlines(), start=1)
    return [(number, line.partition("  # ")[2]) for number, line in lines if "  # " in line]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pyright_reports_exactly_the_announced_errors(wrong: Path) -> None:
    """In its standard mode none in the well typed file; in the other one those on announced lines."""
    pytest.importorskip("pyright", reason="pyright is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(TYPED), str(wrong)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    verdict = json.loads(done.stdout)
    assert verdict["summary"]["filesAnalyzed"] == 2
    found = [each for each in verdict["generalDiagnostics"] if each["severity"] == "error"]
    assert {Path(each["file"]).name for each in found} == {wrong.name}
    assert sorted({each["range"]["start"]["line"] + 1 for each in found}) == [number for number, _ in announced(wrong)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_keeps_handler_types_and_refuses_wrong_calls(wrong: Path) -> None:
    """With the project's settings it reports exactly the errors that comments announce, all in the wrongly typed file.

    It uses the cache of the project, so that after a check of the project it reads its files no more.
    """
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(TYPED), str(wrong)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(r"^(.*):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert {Path(file).name for file, _, _ in found} == {wrong.name}, done.stdout + done.stderr
    assert [(int(number), error) for _, number, error in found] == announced(wrong)
