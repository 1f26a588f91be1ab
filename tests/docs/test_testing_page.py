"""The web application of the page about testing, and its tests, as they are printed."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import write_files


def test_the_tests_of_the_web_application_pass(tmp_path: Path) -> None:
    """With the test client, and on the loop of an async test."""
    assert write_files("docs/testing.md", tmp_path) == ["test_web.py", "web.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
