"""The binder of the page for authors, written out as it is printed, keeps the contract."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "writing-a-binder.md"


@pytest.mark.slow
def test_the_binder_on_the_page_passes_the_suite(tmp_path: Path) -> None:
    """All of its files, and the test, as they stand there; the report says what it refuses."""
    files = dict(re.findall(r"```python\n# ([\w.-]+)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert set(files) == {"properties.py", "hub.py", "consumer.py", "binder.py", "plugin.py", "test_toy.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--contract-report=page.md",
            "test_toy.py",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "page.md").read_text()
    assert "| One key goes to one partition | refused: partition |" in page
    assert "| Every group receives every message | yes |" in page
