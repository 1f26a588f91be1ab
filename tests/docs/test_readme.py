"""The README's example is run as printed."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import write_files


def test_readmes_example_and_its_test_run(tmp_path: Path) -> None:
    """Application, settings and test are copied out of the page; the test passes."""
    assert write_files("README.md", tmp_path) == ["app.py", "application.properties", "test_app.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
