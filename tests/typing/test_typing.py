"""Type checkers see listeners with their own types."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(file: Path, cache: Path) -> "subprocess.CompletedProcess[str]":
    """Return mypy's result for a file, with the project's settings."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(cache),
        "--no-error-summary",
        str(file),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def pyright(file: Path) -> "list[tuple[int, str]]":
    """Return the lines and rules of pyright's errors in its standard mode."""
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(each["range"]["start"]["line"] + 1, each.get("rule", "")) for each in found if each["severity"] == "error"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pyright_reports_exactly_the_announced_errors(tmp_path: Path) -> None:
    """None in the well typed file; in the other one those on announced lines."""
    pytest.importorskip("pyright", reason="pyright is not installed")
    assert pyright(HERE / "typed_application.py") == []
    wrong = tmp_path / "wrongly_typed.py"
    wrong.write_text((HERE / "wrongly_typed.txt").read_text())
    announced = [n for n, line in enumerate(wrong.read_text().splitlines(), start=1) if "  # " in line]
    assert sorted({line for line, _ in pyright(wrong)}) == announced


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_keeps_handler_types_and_refuses_wrong_calls(tmp_path: Path) -> None:
    """It reports exactly the errors that comments announce."""
    cache = tmp_path / "cache"
    verdict = mypy(HERE / "typed_application.py", cache)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    # A text here, so that checkers of the whole project do not trip over it.
    wrong = tmp_path / "wrongly_typed.py"
    wrong.write_text((HERE / "wrongly_typed.txt").read_text())
    verdict = mypy(wrong, cache)
    found = re.findall(r"wrongly_typed\.py:(\d+): error: .*\[([a-z-]+)\]", verdict.stdout)
    lines = wrong.read_text().splitlines()
    expected = [
        (str(number), line.partition("  # ")[2]) for number, line in enumerate(lines, start=1) if "  # " in line
    ]
    assert found == expected
