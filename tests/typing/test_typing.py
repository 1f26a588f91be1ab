"""Type checkers see listeners as they were written."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(file: Path, cache: Path) -> "subprocess.CompletedProcess[str]":
    """mypy's verdict on a file, by the project's own settings."""
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
    """The lines pyright, in its standard mode, has something against, with the rule."""
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
def test_pyright_sees_the_same(tmp_path: Path) -> None:
    """No error in the well typed file; in the other one each announced line has one, and no other line."""
    pytest.importorskip("pyright", reason="pyright is not installed")
    assert pyright(HERE / "typed_application.py") == []
    wrong = tmp_path / "wrongly_typed.py"
    wrong.write_text((HERE / "wrongly_typed.txt").read_text())
    announced = [n for n, line in enumerate(wrong.read_text().splitlines(), start=1) if "  # " in line]
    assert sorted({line for line, _ in pyright(wrong)}) == announced


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_sees_handlers_unchanged_and_refuses_wrong_calls(tmp_path: Path) -> None:
    """The well typed file has no error, the other one those its comments announce, and no more."""
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
