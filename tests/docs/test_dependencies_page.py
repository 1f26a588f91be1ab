"""The application of the page about dependencies, and its test, as they are printed."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import write_files


def test_application_and_its_test_run_as_printed(tmp_path: Path) -> None:
    """The container's object is passed to the listener, and replaced in the test."""
    assert write_files("docs/dependencies.md", tmp_path) == ["shop.py", "test_shop.py"]
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
