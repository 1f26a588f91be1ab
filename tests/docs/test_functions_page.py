"""The files of the page about functions, written out as they are printed, and run."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"


def test_its_files_do_what_it_says(tmp_path: Path) -> None:
    """Its test passes, and no setting of it is unknown."""
    for name, content in re.findall(
        r"```(?:python|properties)\n# ([\w.-]+)\n(.*?)```", PAGE.read_text(), re.DOTALL
    ):
        (tmp_path / name).write_text(content)
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    report = [sys.executable, "-m", "streamkit.cli", "config", "report"]
    for command in (pytest, report):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
