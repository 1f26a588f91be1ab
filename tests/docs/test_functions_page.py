"""The files of the page about functions, written out as they are printed, and run."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import write_files


def test_its_files_do_what_it_says(tmp_path: Path) -> None:
    """Its test passes, and no setting of it is unknown."""
    assert "test_app.py" in write_files("docs/functions.md", tmp_path)
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    report = [sys.executable, "-m", "streamkit.cli", "config", "report"]
    for command in (pytest, report):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
