"""The application of the page about idempotent listeners, and its test."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import write_files


def test_application_and_test_run_as_printed(tmp_path: Path) -> None:
    assert write_files("docs/idempotence.md", tmp_path) == ["bookings.py", "test_bookings.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
