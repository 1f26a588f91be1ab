"""The package on the page about plugins works as printed, given in code and installed."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of, write_files

PAGE = "docs/plugins.md"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The page's files with their installed entry points."""
    write_files(PAGE, tmp_path)
    (project,) = (tomllib.loads(block.text) for block in blocks_of(PAGE) if block.language == "toml")
    name, version = project["project"]["name"], project["project"]["version"]
    info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["project"]["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items()) for group, each in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def python(directory: Path, *arguments: str) -> str:
    """Return the output of Python in that directory, where the package is installed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(directory), str(ROOT)])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_plugins_own_test_passes(package: Path) -> None:
    """It is given in code and installed at the same time."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    assert "1 passed" in python(package, "-m", "pytest", *options, "test_acme_plugin.py")


def test_installed_package_adds_a_command_and_settings(package: Path) -> None:
    """The command is listed with its first sentence, and runs; the settings are explained with their origin."""
    assert re.search(r"price +Check the text of a price", python(package, "-m", "streamkit.cli", "--help"))
    reported = python(package, "-m", "streamkit.cli", "price", "12.50 EUR")
    assert reported == "Price(amount=Decimal('12.50'), currency='EUR')\n"
    (package / "site.json").write_text('{"spring.cloud.stream.bindings.in.group": "vienna"}')
    explained = python(package, "-m", "streamkit.cli", "config", "explain", "in", "--acme.site-file=site.json")
    (line,) = (line for line in explained.splitlines() if "vienna" in line)
    assert line.split()[-1] == "site.json" or "site.json" in line
