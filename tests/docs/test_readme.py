"""The README's example, run as it stands."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import write_files


def test_the_example_and_its_test_run_as_printed(tmp_path: Path) -> None:
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
