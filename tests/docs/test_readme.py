"""The README's example, run as it stands."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """The README's code blocks in that language."""
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_example_and_its_test_run_as_printed(tmp_path: Path) -> None:
    """Application, settings and test are copied out of the page; the test passes."""
    application, test = blocks("python")
    (settings,) = blocks("properties")
    (tmp_path / "app.py").write_text(application)
    (tmp_path / "application.properties").write_text(settings)
    (tmp_path / "test_app.py").write_text(test)
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
