"""Type checkers see listeners as they were written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(file: str, cache: Path) -> "subprocess.CompletedProcess[str]":
    """mypy's verdict on a file of this folder, by the project's own settings."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(cache),
        "--no-error-summary",
        f"tests/typing/{file}",
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_sees_handlers_unchanged_and_refuses_wrong_calls(tmp_path: Path) -> None:
    """The well typed file has no error, the other one those its comments announce, and no more."""
    verdict = mypy("typed_application.py", tmp_path)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    verdict = mypy("wrongly_typed.py", tmp_path)
    found = re.findall(r"wrongly_typed\.py:(\d+): error: .*\[([a-z-]+)\]", verdict.stdout)
    lines = (HERE / "wrongly_typed.py").read_text().splitlines()
    expected = [
        (str(number), line.partition("  # ")[2])
        for number, line in enumerate(lines, start=1)
        if "  # " in line
    ]
    assert found == expected
