"""The files on the page about functions are written out and run."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import write_files


def test_files_of_the_page_work(tmp_path: Path) -> None:
    """Their test passes, and no setting is unknown."""
    assert "test_app.py" in write_files("docs/functions.md", tmp_path)
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    report = [sys.executable, "-m", "streamkit.cli", "config", "report"]
    for command in (pytest, report):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
