"""The application of the page about the outbox, its test, and its table of settings."""

import subprocess
import sys
from pathlib import Path

from streamkit.config.settings_model import fields_of
from streamkit.patterns.outbox.settings import OUTBOX, OutboxProperties
from tests.docs.pages import ROOT, write_files


def test_applications_and_test_run_as_printed(tmp_path: Path) -> None:
    files = write_files("docs/outbox.md", tmp_path)
    assert sorted(files) == ["django_shop.py", "send.py", "shop.py", "stock.py", "test_shop.py"]
    (tmp_path / "test_imports.py").write_text("def test_imports() -> None:\n    import django_shop, stock\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_page_has_each_setting() -> None:
    page = (ROOT / "docs" / "outbox.md").read_text()
    missing = [name for name in fields_of(OutboxProperties) if f"`{OUTBOX}.{name.replace('_', '-')}`" not in page]
    assert missing == []
